//! The event log: records in slots, many to a field of a hash for each bucket of time; sums by granule beside them.

use super::record::{self, closed_code};
use super::{RedisNamespace, defect, of_link};
use crate::log::{Appended, Change, Closed, EventLog, GRANULE_MS, NewEvent, Pending, Sealed};
use crate::names::CounterName;
use crate::namespace::{FUTURE_LIMIT_MS, Place, SHARDS, SKEW_MS};
use crate::refusal::Refusal;
use futures::future::{join_all, try_join_all};
use redis::{Value, from_redis_value};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tallystone_lua::counter::{Answer, CounterScript};

/// Hashes of records that one script call names.
const BUCKETS_MAX: usize = 200;
/// Events of one script call: a call holds up Redis for some microseconds each.
const EVENTS_MAX: usize = 512;
/// Times that fit the records; a token's own is bounded by the limits of the namespace.
const TIME_MS_MAX: u64 = 1 << 47;

impl EventLog for RedisNamespace {
    async fn append(&self, events: &[NewEvent]) -> Vec<Result<Appended, Refusal>> {
        let mut results: Vec<Option<Result<Appended, Refusal>>> = vec![None; events.len()];
        let mut by_shard: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (number, event) in events.iter().enumerate() {
            match self.refused_at_once(event) {
                Some(refusal) => results[number] = Some(Err(refusal)),
                None => {
                    let (shard, _) = Place::of(&event.counter).of_event(&event.token, &self.config);
                    by_shard.entry(shard).or_default().push(number);
                }
            }
        }
        let calls: Vec<(u16, Vec<usize>)> = by_shard
            .into_iter()
            .flat_map(|(shard, numbers)| {
                let chunks: Vec<_> = numbers.chunks(EVENTS_MAX).map(|chunk| (shard, chunk.to_vec())).collect();
                chunks
            })
            .collect();
        let answered = calls.iter().map(|(shard, numbers)| self.append_to(*shard, events, numbers));
        for ((_, numbers), answers) in calls.iter().zip(join_all(answered).await) {
            for (number, answer) in numbers.iter().zip(answers) {
                results[*number] = Some(answer);
            }
        }
        results.into_iter().map(|result| result.unwrap_or_else(|| Err(defect("too little")))).collect()
    }

    async fn pending(&self, counter: &CounterName) -> Result<Vec<(u16, Pending)>, Refusal> {
        let read = Place::of(counter).shards(&self.config).map(async |shard| {
            let key = self.keys(shard).key("pending");
            match self.link.call(redis::cmd("HGET").arg(key).arg(counter.as_str())).await.map_err(of_link)? {
                Value::Nil => Ok((shard, Pending::default())),
                Value::BulkString(raw) => Ok((shard, record::pending(&raw)?)),
                _ => Err(defect("no pending record")),
            }
        });
        try_join_all(read).await
    }

    async fn seal(&self, counter: &CounterName) -> Result<Sealed, Refusal> {
        let sealed = Place::of(counter).shards(&self.config).map(async |shard| {
            let mut command = self.log_call(CounterScript::Seal, &self.keys(shard).log());
            command.arg(self.config.accept_limit_ms + SKEW_MS).arg(counter.as_str());
            let mut reply = self.run(&command).await?;
            let sealed_to_ms = reply.number()?;
            let raw = reply.bytes()?.ok_or_else(|| defect("no pending record"))?;
            Ok::<_, Refusal>((sealed_to_ms, (shard, record::pending(&raw)?)))
        });
        let sealed = try_join_all(sealed).await?;
        let sealed_to_ms = sealed.iter().map(|(to_ms, _)| *to_ms).min().unwrap_or_default();
        Ok(Sealed { sealed_to_ms, pending: sealed.into_iter().map(|(_, pending)| pending).collect() })
    }

    async fn sum_after(&self, counter: &CounterName, shard: u16, granule: u64, after_ms: u64) -> Result<i64, Refusal> {
        let begin_ms = granule * GRANULE_MS;
        let key = self.events_key(shard, begin_ms);
        let layout = self.link.call(redis::cmd("HGET").arg(&key).arg("")).await.map_err(of_link)?;
        let Value::BulkString(layout) = layout else { return Ok(0) };
        let slots = slots_at(&layout, granule);
        let mut command = redis::cmd("HMGET");
        command.arg(&key);
        for slot in 0..slots {
            command.arg(slot_field(granule, slot));
        }
        let found: Vec<Option<Vec<u8>>> = from_redis_value(self.link.call(&command).await.map_err(of_link)?)
            .map_err(|error| Refusal::Internal(error.to_string()))?;
        let (id, after) = (Place::of(counter).id(), after_ms.checked_sub(begin_ms));
        let mut sum = 0;
        for slot in found.iter().flatten() {
            sum += record::sum_after(slot, id, after)?;
        }
        i64::try_from(sum).map_err(|_| Refusal::Internal(format!("'{counter}' has a sum of {sum}")))
    }

    async fn settle(&self, counter: &CounterName, settled_to_ms: u64, closed: Closed) -> Result<(), Refusal> {
        let settled = Place::of(counter).shards(&self.config).map(async |shard| {
            let mut command = self.log_call(CounterScript::Settle, &self.keys(shard).log());
            command.arg(self.config.due_after_ms());
            command.arg(counter.as_str()).arg(settled_to_ms).arg(closed_code(closed));
            self.run(&command).await.map(drop)
        });
        try_join_all(settled).await.map(drop)
    }

    async fn close(&self, counter: &CounterName, closed_to_ms: u64, closed: Closed) -> Result<(), Refusal> {
        let done = Place::of(counter).shards(&self.config).map(async |shard| {
            let mut command = self.log_call(CounterScript::Close, &self.keys(shard).log());
            command.arg(self.config.due_after_ms()).arg(closed_to_ms);
            command.arg(closed_code(closed)).arg(counter.as_str());
            self.run(&command).await.map(drop)
        });
        try_join_all(done).await.map(drop)
    }

    async fn due(&self, shard: u16, limit: usize, hold_ms: u64) -> Result<(Vec<CounterName>, Option<u64>), Refusal> {
        let mut command = self.log_call(CounterScript::Due, &self.keys(shard).log());
        command.arg(limit).arg(hold_ms);
        let mut reply = self.run(&command).await?;
        let next_ms = reply.number()?;
        let mut counters = Vec::new();
        while let Some(name) = reply.bytes()? {
            let name = String::from_utf8(name).map_err(|_| defect("bytes for a counter"))?;
            counters.push(CounterName::parse(name)?);
        }
        Ok((counters, (next_ms > 0).then_some(next_ms)))
    }

    fn shards(&self) -> u16 {
        SHARDS
    }
}

impl RedisNamespace {
    /// What needs no look at the store.
    fn refused_at_once(&self, event: &NewEvent) -> Option<Refusal> {
        if event.time_ms >= TIME_MS_MAX {
            return Some(Refusal::TooEarly);
        }
        match event.change {
            Change::Add(delta) if delta.unsigned_abs() > self.config.pending_max().unsigned_abs() => {
                Some(Refusal::Overflow)
            }
            _ => None,
        }
    }

    fn events_key(&self, shard: u16, time_ms: u64) -> String {
        let bucket_s = self.config.seconds_per_bucket;
        self.keys(shard).events(bucket_s, time_ms / (bucket_s * 1_000))
    }

    /// One script call, or several where the events are of very many times.
    async fn append_to(&self, shard: u16, events: &[NewEvent], numbers: &[usize]) -> Vec<Result<Appended, Refusal>> {
        let mut answers = Vec::with_capacity(numbers.len());
        let mut rest = numbers;
        while !rest.is_empty() {
            let mut buckets = BTreeSet::new();
            let of_bucket = |number: &&usize| {
                buckets.insert(self.events_key(shard, events[**number].time_ms));
                buckets.len() <= BUCKETS_MAX
            };
            let count = rest.iter().take_while(of_bucket).count();
            let (now, later) = rest.split_at(count);
            match self.append_now(shard, now.iter().map(|number| &events[*number])).await {
                Ok(answered) => answers.extend(answered),
                // What an earlier call has counted is counted.
                Err(refusal) => answers.extend(now.iter().map(|_| Err(refusal.clone()))),
            }
            rest = later;
        }
        answers
    }

    async fn append_now<'a>(
        &self,
        shard: u16,
        events: impl Iterator<Item = &'a NewEvent>,
    ) -> Result<Vec<Result<Appended, Refusal>>, Refusal> {
        let mut keys = self.keys(shard).log().to_vec();
        let (mut buckets, mut counters) = (HashMap::new(), HashMap::new());
        let (mut names, mut items) = (Vec::new(), Vec::new());
        for event in events {
            let bucket = self.events_key(shard, event.time_ms);
            let key = *buckets.entry(bucket).or_insert_with_key(|bucket| {
                keys.push(bucket.clone());
                keys.len() as u8
            });
            let counter = *counters.entry(&event.counter).or_insert_with(|| {
                names.push(event.counter.as_str());
                names.len() as u16
            });
            let place = Place::of(&event.counter);
            let (_, slot) = place.of_event(&event.token, &self.config);
            items.push(record::item(event, place.id(), slot, key, counter));
        }
        let config = &self.config;
        let mut parameters = Vec::with_capacity(48);
        for ms in [config.accept_limit_ms, FUTURE_LIMIT_MS, config.close_after_ms, config.due_after_ms()] {
            parameters.extend_from_slice(&ms.to_be_bytes()[2..]);
        }
        parameters.extend_from_slice(&(names.len() as u16).to_be_bytes());
        parameters.extend_from_slice(&config.pending_max().to_be_bytes());
        let mut command = self.log_call(CounterScript::Append, &keys);
        command.arg(parameters).arg(names).arg(&items);
        let mut reply = self.run(&command).await?;
        let _now_ms = reply.number()?;
        items.iter().map(|_| Ok(appended(reply.answer()?))).collect()
    }
}

fn appended(answer: Answer) -> Result<Appended, Refusal> {
    match answer {
        Answer::Ok => Ok(Appended::Counted),
        Answer::Duplicate => Ok(Appended::Duplicate),
        Answer::Conflict => Err(Refusal::TokenConflict),
        Answer::TooOld => Err(Refusal::TooOld),
        Answer::TooEarly => Err(Refusal::TooEarly),
        Answer::Overflow => Err(Refusal::Overflow),
        Answer::Expired => Err(Refusal::TokenExpired),
        other => Err(defect(&format!("{other:?} for an event"))),
    }
}

/// How many slots a granule has; `append.lua` says the same.
fn slots_at(layout: &[u8], granule: u64) -> u32 {
    let entries = layout.chunks_exact(9).map(|entry| {
        let (from, slots) = entry.split_at(5);
        (record::read(from), record::read(slots) as u32)
    });
    entries.take_while(|(from, _)| *from <= granule).last().map_or(1, |(_, slots)| slots)
}

fn slot_field(granule: u64, slot: u32) -> Vec<u8> {
    [&granule.to_be_bytes()[3..], &slot.to_be_bytes()].concat()
}
