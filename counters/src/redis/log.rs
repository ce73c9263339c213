//! The event log: records in slots, and next to them sums by window. `append` and `events` have the longer calls.

use super::RedisNamespace;
use super::calls::defect;
use super::fan_out::{by_counter, names, shards_of};
use super::layout::Layout;
use super::record::{self, closed_code};
use crate::log::{
    Appended, Due, EventScan, Events, NewEvent, Pending, RollupLog, RollupSchedule, Sealed, Settlement, Unlogged,
    WINDOW_MS,
};
use crate::names::CounterName;
use crate::namespace::Placement;
use crate::refusal::Refusal;
use futures::future::try_join_all;
use std::ops::Range;
use tallystone_lua::counter::{CounterScript, OLDER_FIELD, STATE_OPEN, STATE_PRUNED, STATE_SEALED_TO};

impl Events for RedisNamespace {
    async fn append_while(
        &self,
        events: &[NewEvent],
        is_wanted: &(dyn Fn(usize) -> bool + Sync),
    ) -> Vec<Result<Appended, Unlogged>> {
        self.append_all(events, is_wanted).await
    }

    async fn find_archived(&self, late: &[NewEvent]) -> Vec<Result<Appended, Refusal>> {
        self.find_late(late).await
    }

    async fn scan(&self, counter: &CounterName, windows: Range<u64>, enough: usize) -> Result<EventScan, Refusal> {
        self.scan_events(counter, windows, enough).await
    }

    async fn tick(&self, until: &[(CounterName, u64)]) -> Result<Vec<u64>, Refusal> {
        let of_shard = async |(shard, numbers): (u16, Vec<usize>)| {
            let command = self.log_call(CounterScript::Tick, shard, &self.keys(shard).log());
            let mut reply = self.run(shard, &command).await?;
            let (shown_ms, store_ms) = (reply.number()?, reply.number()?);
            self.partition(shard).now.observe(store_ms);
            let wait_ms = |number: &usize| until[*number].1.max(shown_ms).saturating_sub(store_ms);
            let waits = numbers.iter().map(wait_ms).collect::<Vec<u64>>();
            Ok::<_, Refusal>((shard, numbers, waits))
        };
        let shards = shards_of(until.iter().map(|(counter, _)| counter), &self.config);
        let waits = by_counter(until.len(), try_join_all(shards.map(of_shard)).await?);
        let longest = |shards: Vec<(u16, u64)>| shards.into_iter().map(|(_, wait_ms)| wait_ms).max();
        Ok(waits.into_iter().map(|shards| longest(shards).unwrap_or_default()).collect())
    }

    async fn exact_to(&self, counter: &CounterName) -> Result<u64, Refusal> {
        let fences = |shard| self.state(shard, [STATE_SEALED_TO, STATE_OPEN, STATE_PRUNED]);
        let shards = try_join_all(Placement::of(counter).shards(&self.config).map(fences)).await?;
        let fence_ms = shards.into_iter().map(|fences_ms| fences_ms.into_iter().max().unwrap_or_default());
        Ok(fence_ms.min().unwrap_or_default())
    }

    async fn prune(&self, shard: u16) -> Result<u64, Refusal> {
        self.prune_shard(shard).await
    }

    fn first_ms(&self) -> u64 {
        self.first_ms
    }
}

impl RollupLog for RedisNamespace {
    async fn pending(&self, counters: &[CounterName]) -> Result<Vec<Vec<(u16, Pending)>>, Refusal> {
        let read = async |(shard, numbers): (u16, Vec<usize>)| {
            let pending = self.pending_in(shard, &names(counters, &numbers)).await?;
            Ok::<_, Refusal>((shard, numbers, pending))
        };
        Ok(by_counter(counters.len(), try_join_all(shards_of(counters, &self.config).map(read)).await?))
    }

    async fn seal(&self, counters: &[CounterName]) -> Result<Vec<Sealed>, Refusal> {
        let seal = async |(shard, numbers): (u16, Vec<usize>)| {
            let mut command = self.log_call(CounterScript::Seal, shard, &self.keys(shard).log());
            command.arg(self.config.lag_ms()).arg(names(counters, &numbers));
            let mut reply = self.run(shard, &command).await?;
            let sealed_to_ms = reply.number()?;
            let raw = |_: &usize| Ok(reply.bytes()?.to_vec());
            let raws = numbers.iter().map(raw).collect::<Result<Vec<Vec<u8>>, Refusal>>()?;
            let pending = self.whole(shard, &names(counters, &numbers), &raws).await?;
            let pending: Vec<(u64, Pending)> = pending.into_iter().map(|pending| (sealed_to_ms, pending)).collect();
            Ok::<_, Refusal>((shard, numbers, pending))
        };
        let sealed = by_counter(counters.len(), try_join_all(shards_of(counters, &self.config).map(seal)).await?);
        let of_counter = |shards: Vec<(u16, (u64, Pending))>| Sealed {
            sealed_to_ms: shards.iter().map(|(_, (to_ms, _))| *to_ms).min().unwrap_or_default(),
            pending: shards.into_iter().map(|(shard, (_, pending))| (shard, pending)).collect(),
            expire_after_ms: self.config.expire_after_ms,
            has_regions: !self.config.regions.is_empty(),
        };
        Ok(sealed.into_iter().map(of_counter).collect())
    }

    async fn sum_after(&self, counter: &CounterName, shard: u16, window: u64, after_ms: u64) -> Result<i64, Refusal> {
        let (id, after) = (Placement::of(counter).id(), after_ms.checked_sub(window * WINDOW_MS));
        let mut sum = 0;
        for slot in self.slots(shard, window).await? {
            sum += record::sum_after(&slot, id, after)?;
        }
        i64::try_from(sum).map_err(|_| Refusal::Internal(format!("'{counter}' has a sum of {sum}")))
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<(), Refusal> {
        let of_shard = async |(shard, mut numbers): (u16, Vec<usize>)| {
            // A call removes a bounded number of windows. Those that it leaves are in the checkpoint already, as after a crash.
            while !numbers.is_empty() {
                let mut command = self.log_call(CounterScript::Settle, shard, &self.keys(shard).settle());
                command.arg(self.config.due_after_ms()).arg(u8::from(self.config.archived));
                for settlement in numbers.iter().map(|number| &settlements[*number]) {
                    let Settlement { counter, to_ms, closed, is_deleted, .. } = settlement;
                    let again_after_ms = self.config.circulation_ms(settlement.idle_ms()) as i64;
                    command.arg(counter.as_str()).arg(to_ms).arg(closed_code(*closed));
                    command.arg(match is_deleted {
                        _ if shard != Placement::of(counter).home() => 0,
                        true => -again_after_ms,
                        false => again_after_ms,
                    });
                }
                let (mut reply, mut left) = (self.run(shard, &command).await?, Vec::new());
                while !reply.is_at_end() {
                    let position = reply.number()? as usize;
                    left.push(*numbers.get(position).ok_or_else(|| defect("an unknown counter"))?);
                }
                numbers = left;
            }
            Ok::<_, Refusal>(())
        };
        let shards = shards_of(settlements.iter().map(|settlement| &settlement.counter), &self.config);
        let reached = shards.filter_map(|(shard, mut numbers)| {
            numbers.retain(|number| {
                let settlement = &settlements[*number];
                shard == Placement::of(&settlement.counter).home() || !settlement.skips(shard)
            });
            (!numbers.is_empty()).then_some((shard, numbers))
        });
        try_join_all(reached.map(of_shard)).await.map(drop)
    }

    async fn close(&self, closing: &Settlement) -> Result<(), Refusal> {
        let done = Placement::of(&closing.counter).shards(&self.config).map(async |shard| {
            let mut command = self.log_call(CounterScript::Close, shard, &self.keys(shard).log());
            command.arg(closing.to_ms);
            command.arg(closed_code(closing.closed)).arg(closing.counter.as_str());
            self.run(shard, &command).await.map(drop)
        });
        try_join_all(done).await.map(drop)
    }
}

impl RollupSchedule for RedisNamespace {
    async fn due(&self, shard: u16, limit: usize, hold_ms: u64) -> Result<Due, Refusal> {
        let mut command = self.log_call(CounterScript::Due, shard, &self.keys(shard).log());
        command.arg(self.config.due_after_ms()).arg(limit).arg(hold_ms);
        let mut reply = self.run(shard, &command).await?;
        let (now_ms, next_ms, dirty) = (reply.number()?, reply.number()?, reply.number()?);
        self.partition(shard).now.observe(now_ms);
        let mut counters = Vec::new();
        while !reply.is_at_end() {
            counters.push((CounterName::parse(reply.text()?)?, reply.number()?));
        }
        Ok(Due { counters, next_ms: (next_ms > 0).then_some(next_ms), now_ms, dirty })
    }

    async fn defer(&self, shard: u16, counters: &[CounterName], delay_ms: u64) -> Result<(), Refusal> {
        let mut command = self.log_call(CounterScript::Defer, shard, &self.keys(shard).log());
        command.arg(self.config.due_after_ms()).arg(delay_ms);
        command.arg(counters.iter().map(CounterName::as_str).collect::<Vec<&str>>());
        if counters.is_empty() { Ok(()) } else { self.run(shard, &command).await.map(drop) }
    }

    async fn touch(&self, touched: &[(CounterName, bool)]) -> Result<bool, Refusal> {
        let of_shard = async |(shard, numbers): (u16, Vec<usize>)| {
            let mut command = self.log_call(CounterScript::Touch, shard, &self.keys(shard).log());
            command.arg(self.config.due_after_ms()).arg(self.config.lag_ms());
            for (counter, though_idle) in numbers.iter().map(|number| &touched[*number]) {
                let though_idle = *though_idle && shard == Placement::of(counter).home();
                command.arg(counter.as_str()).arg(u8::from(though_idle));
            }
            Ok::<_, Refusal>(self.run(shard, &command).await?.number()?)
        };
        let hurried =
            try_join_all(shards_of(touched.iter().map(|(counter, _)| counter), &self.config).map(of_shard)).await?;
        Ok(hurried.into_iter().any(|counters| counters > 0))
    }
}

impl RedisNamespace {
    /// Reads the numbers in these ranges of bytes of a shard's state.
    pub(super) async fn state<const N: usize>(
        &self,
        shard: u16,
        numbers: [Range<usize>; N],
    ) -> Result<[u64; N], Refusal> {
        let state: Vec<u8> = self.query(shard, redis::cmd("GET").arg(self.keys(shard).key("state"))).await?;
        let mut found = [0; N];
        for (found, number) in found.iter_mut().zip(numbers) {
            *found = record::read(state.get(number).ok_or_else(|| defect("no state"))?);
        }
        Ok(found)
    }

    /// What is pending of counters in one shard.
    pub(super) async fn pending_in(&self, shard: u16, names: &[&str]) -> Result<Vec<Pending>, Refusal> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut command = redis::cmd("HMGET");
        command.arg(self.keys(shard).key("pending"));
        // Both fields of a record in one command: an append may move windows from one to the other.
        for name in names {
            command.arg(name).arg(format!("{OLDER_FIELD}{name}"));
        }
        let raws: Vec<Option<Vec<u8>>> = self.query(shard, &command).await?;
        let raws: Vec<Vec<u8>> = raws.chunks_exact(2).map(joined).collect();
        self.whole(shard, names, &raws).await
    }

    /// These pending records with their chunks.
    async fn whole(&self, shard: u16, names: &[&str], raws: &[Vec<u8>]) -> Result<Vec<Pending>, Refusal> {
        let with_chunks = |number: usize| self.with_chunks(shard, names[number], &raws[number]);
        try_join_all((0..names.len()).map(with_chunks)).await
    }

    /// A pending record with its chunks; `raw`: the record as it was read before. One command reads all of it: between two commands an
    /// append may move windows into a chunk, a rollup may settle some, and after a failover another primary may answer.
    async fn with_chunks(&self, shard: u16, name: &str, raw: &[u8]) -> Result<Pending, Refusal> {
        let (mut pending, mut chunks) = record::pending(raw)?;
        while !chunks.is_empty() {
            let mut command = redis::cmd("HMGET");
            command.arg(self.keys(shard).key("pending")).arg(name).arg(format!("{OLDER_FIELD}{name}"));
            for number in chunks.clone().rev() {
                command.arg(format!("{OLDER_FIELD}{number}{OLDER_FIELD}{name}"));
            }
            let found: Vec<Option<Vec<u8>>> = self.query(shard, &command).await?;
            let (record, read) = found.split_at_checked(2).ok_or_else(|| defect("a reply without the record"))?;
            let (of_record, named) = record::pending(&joined(record))?;
            pending = of_record;
            if named.is_empty() || chunks.start <= named.start && named.end <= chunks.end {
                for (entries, _) in read.iter().zip(chunks.rev()).filter(|(_, number)| named.contains(number)) {
                    let entries = entries.as_ref().ok_or_else(|| defect("a missing chunk of a pending record"))?;
                    pending.windows.extend(record::windows(entries)?);
                }
                break;
            }
            chunks = named;
        }
        Ok(pending)
    }

    /// The slots of one window of a shard.
    async fn slots(&self, shard: u16, window: u64) -> Result<Vec<Vec<u8>>, Refusal> {
        let keys = self.keys(shard);
        let layout: Option<Vec<u8>> = self.query(shard, redis::cmd("GET").arg(keys.key("layout"))).await?;
        let Some(layout) = layout else { return Ok(Vec::new()) };
        let bucket_s = self.config.seconds_per_bucket;
        let mut command = redis::cmd("HMGET");
        command.arg(keys.events(bucket_s, window * WINDOW_MS / (bucket_s * 1_000)));
        for field in Layout::decode(0, &layout).fields(window) {
            command.arg(&field[..]);
        }
        let found: Vec<Option<Vec<u8>>> = self.query(shard, &command).await?;
        Ok(found.into_iter().flatten().collect())
    }
}

/// The parts of a record.
fn joined(parts: &[Option<Vec<u8>>]) -> Vec<u8> {
    parts.iter().flatten().flatten().copied().collect()
}
