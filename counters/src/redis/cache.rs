//! BEST_EFFORT counters (N4): each is a key with one number, changed by `INCRBY`.
//!
//! No script checks these writes, so each pipeline ends with the revision that a shard of the namespace follows. If the shard
//! was closed, the writes before it may have changed keys of a deleted namespace (N14): they are stale, and go to the
//! namespace that has the name now. Keys are removed only after every shard was closed, so what preceded an open one was
//! written before that.

use super::RedisNamespace;
use super::calls::{defect, of_link};
use super::fan_out::{homes, in_order};
use super::record::read;
use crate::cache::Cache;
use crate::names::CounterName;
use crate::namespace::{Placement, SHARDS};
use crate::refusal::Refusal;
use futures::future::{join_all, try_join_all};
use redis::{Cmd, Pipeline, Value, from_redis_value};
use std::collections::HashMap;
use tallystone_link::ScanPosition;
use tallystone_lua::counter::{DELETED_REVISION, STATE_REVISION};

const INCRBY: &str = "INCRBY";
/// Commands of one pipeline; each pipeline takes another connection than the previous one. Redis reads 16 KiB at a time and
/// syncs its file after each part; shorter pipelines cost more system calls (docs/decisions/0023).
const PIPELINE: usize = 400;
/// The length of an i64 as text.
const SUM_BYTES_MAX: usize = 20;

impl Cache for RedisNamespace {
    async fn cache_add(&self, adds: &[(CounterName, i64)]) -> Vec<Result<(), Refusal>> {
        let mut numbers: HashMap<&CounterName, usize> = HashMap::with_capacity(adds.len());
        let mut sums: Vec<(&CounterName, i128, u32)> = Vec::with_capacity(adds.len());
        let mut of_add = Vec::with_capacity(adds.len());
        for (counter, delta) in adds {
            let number = *numbers.entry(counter).or_insert(sums.len());
            if number == sums.len() {
                sums.push((counter, 0, 0));
            }
            sums[number].1 += i128::from(*delta);
            sums[number].2 += 1;
            of_add.push(number);
        }
        let together = sums.iter().map(|(counter, sum, _)| i64::try_from(*sum).ok().map(|sum| (*counter, sum)));
        let (fitting, positions): (Vec<(&CounterName, i64)>, Vec<usize>) =
            together.enumerate().filter_map(|(number, sum)| Some((sum?, number))).unzip();
        let mut done: Vec<Result<(), Refusal>> = vec![Err(Refusal::Overflow); sums.len()];
        for (number, result) in positions.into_iter().zip(self.increment(&fitting).await) {
            done[number] = result;
        }
        let mut results = Vec::with_capacity(adds.len());
        for ((counter, delta), number) in adds.iter().zip(of_add) {
            results.push(match &done[number] {
                // Together they would overflow, and nothing has changed; one after the other some may fit.
                Err(Refusal::Overflow) if sums[number].2 > 1 => self.increment(&[(counter, *delta)]).await.remove(0),
                result => result.clone(),
            });
        }
        results
    }

    async fn cache_get(&self, counters: &[CounterName]) -> Result<Vec<i64>, Refusal> {
        let read = async |(shard, numbers): (u16, Vec<usize>)| {
            let mut command = redis::cmd("MGET");
            for number in &numbers {
                command.arg(self.keys(shard).cached(counters[*number].as_str()));
            }
            let counts: Vec<Option<i64>> = self.query(shard, &command).await?;
            Ok::<_, Refusal>((numbers, counts.into_iter().map(Option::unwrap_or_default).collect()))
        };
        in_order(counters.len(), try_join_all(homes(counters.iter()).map(read)).await?)
    }

    async fn cache_clear(&self, counters: &[CounterName]) -> Vec<Result<(), Refusal>> {
        let clear = async |(shard, numbers): (u16, Vec<usize>)| {
            let mut commands = Pipeline::with_capacity(2);
            let command = commands.cmd("UNLINK");
            for number in &numbers {
                command.arg(self.keys(shard).cached(counters[*number].as_str()));
            }
            let cleared = self.write(shard, commands).await;
            let cleared = cleared.and_then(|replies| replies.into_iter().try_for_each(written));
            let results = vec![cleared; numbers.len()];
            (numbers, results)
        };
        let cleared = join_all(homes(counters.iter()).map(clear)).await;
        in_order(counters.len(), cleared).unwrap_or_else(|refusal| vec![Err(refusal); counters.len()])
    }
}

impl RedisNamespace {
    /// Splits adds into pipelines by their number, and by shard only where shards are in several partitions. The first
    /// connection is random, so that flushes under way at the same time take different ones.
    async fn increment(&self, sums: &[(&CounterName, i64)]) -> Vec<Result<(), Refusal>> {
        let step = if self.config.ttl_ms > 0 || self.may_have_had_ttl() { 2 } else { 1 };
        let (prefixes, first) = (self.cached_prefixes(), usize::from(rand::random_range(0..SHARDS)));
        let mut pipelines = Vec::new();
        for (shards, numbers) in self.by_partition(sums) {
            let first = first % shards.len();
            let links = shards.into_iter().cycle().skip(first);
            let chunks = numbers.chunks(PIPELINE / step).map(<[usize]>::to_vec);
            pipelines.extend(chunks.collect::<Vec<Vec<usize>>>().into_iter().zip(links));
        }
        let prefixes = &prefixes;
        let increment = async |(numbers, shard): (Vec<usize>, u16)| {
            let adds: Vec<(&CounterName, i64)> = numbers.iter().map(|number| sums[*number]).collect();
            let results = self.increment_on(shard, &adds, prefixes, step).await;
            (numbers, results)
        };
        let results = join_all(pipelines.into_iter().map(increment)).await;
        in_order(sums.len(), results).unwrap_or_else(|refusal| vec![Err(refusal); sums.len()])
    }

    /// The indices of these adds by the partition of their counters; each with the shards that are there.
    fn by_partition(&self, sums: &[(&CounterName, i64)]) -> Vec<(Vec<u16>, Vec<usize>)> {
        if self.partitions.count() == 1 {
            return vec![((0..SHARDS).collect(), (0..sums.len()).collect())];
        }
        let mut found: HashMap<usize, (Vec<u16>, Vec<usize>)> = HashMap::new();
        let partitions: [usize; SHARDS as usize] =
            std::array::from_fn(|shard| self.partitions.number_of(&self.tag, shard as u16));
        for (shard, partition) in (0..SHARDS).zip(partitions) {
            found.entry(partition).or_default().0.push(shard);
        }
        for (number, (counter, _)) in sums.iter().enumerate() {
            let partition = partitions[usize::from(Placement::of(counter).home())];
            found.entry(partition).or_default().1.push(number);
        }
        found.into_values().collect()
    }

    async fn increment_on(
        &self,
        shard: u16,
        sums: &[(&CounterName, i64)],
        prefixes: &[String],
        step: usize,
    ) -> Vec<Result<(), Refusal>> {
        let (mut commands, mut key) = (Pipeline::with_capacity(sums.len() * step + 1), String::new());
        for (counter, sum) in sums {
            key.clear();
            key.push_str(&prefixes[usize::from(Placement::of(counter).home())]);
            key.push_str(counter.as_str());
            let mut command = Cmd::with_capacity(3, INCRBY.len() + key.len() + SUM_BYTES_MAX);
            command.arg(INCRBY).arg(&key).arg(sum);
            commands.add_command(command);
            if self.config.ttl_ms > 0 {
                commands.cmd("PEXPIRE").arg(&key).arg(self.config.ttl_ms);
            } else if step > 1 {
                commands.cmd("PERSIST").arg(&key);
            }
        }
        match self.write(shard, commands).await {
            Ok(replies) => replies.into_iter().step_by(step).map(written).collect(),
            Err(refusal) => vec![Err(refusal); sums.len()],
        }
    }

    /// The replies to these writes, over the connection of this shard. Their keys are in its partition.
    ///
    /// # Errors
    /// [`Refusal::Stale`]: the namespace was deleted. Its keys go, so nothing has changed. [`Refusal::DataLoss`].
    async fn write(&self, shard: u16, mut commands: Pipeline) -> Result<Vec<Value>, Refusal> {
        let (state, last) = (self.keys(shard).key("state"), STATE_REVISION.end - 1);
        commands.cmd("GETRANGE").arg(state).arg(STATE_REVISION.start).arg(last);
        let mut replies = self.link(shard).calls(&commands, true).await.map_err(of_link)?;
        if replies.len() != commands.len() {
            return Err(defect("too little"));
        }
        match replies.pop() {
            Some(Value::BulkString(revision)) if revision.is_empty() => {
                // In an emptied store: what was written there stays only if an operator accepts the store as it is.
                self.partition(shard).verify().await?;
                Err(Refusal::Stale)
            }
            Some(Value::BulkString(revision)) if read(&revision) == DELETED_REVISION => Err(Refusal::Stale),
            Some(Value::BulkString(_)) => Ok(replies),
            Some(Value::ServerError(error)) => Err(of_link(error.into())),
            _ => Err(defect("no state")),
        }
    }

    /// The prefix of the counters' keys, by shard.
    fn cached_prefixes(&self) -> [String; SHARDS as usize] {
        std::array::from_fn(|shard| self.keys(shard as u16).cached(""))
    }

    /// Whether an earlier revision may have set a time to live. A namespace that was never changed has none.
    fn may_have_had_ttl(&self) -> bool {
        self.revision > 1
    }

    /// A shard in the partition where a walk from here to `next` has ended; `None`: it continues there.
    pub(super) fn shard_behind(&self, from: CachePosition, next: Option<CachePosition>) -> Option<u16> {
        let number = from.partition;
        let has_ended = next.is_none_or(|next| next.partition != number);
        (0..SHARDS).find(|shard| has_ended && self.partitions.number_of(&self.tag, *shard) == number)
    }

    /// Some names of counters, in no order, and the position of the next call; `None`: these were the last ones.
    pub(super) async fn cache_scan(
        &self,
        position: CachePosition,
        count: usize,
    ) -> Result<(Vec<CounterName>, Option<CachePosition>), Refusal> {
        let CachePosition { partition: number, within } = position;
        let Some(partition) = self.partitions.all().get(number) else { return Ok((Vec::new(), None)) };
        let prefixes = self.cached_prefixes();
        let keys = partition.keyspace.key(&format!("tc:{{{}/?}}:cached:*", self.tag));
        let after = ["MATCH", &keys, "COUNT", &count.to_string()];
        let (found, within) = partition.any_link().scan(within, &["SCAN"], &after).await.map_err(of_link)?;
        let keys: Vec<String> = from_redis_value(found).map_err(|error| Refusal::Internal(error.to_string()))?;
        let name = |key: String| prefixes.iter().find_map(|prefix| key.strip_prefix(prefix).map(str::to_owned));
        let names = keys.into_iter().filter_map(name).map(CounterName::parse).collect::<Result<_, _>>()?;
        let next = match within {
            None => CachePosition { partition: number + 1, within: ScanPosition::default() },
            Some(within) => CachePosition { partition: number, within },
        };
        Ok((names, (next.partition < self.partitions.all().len()).then_some(next)))
    }
}

/// The position of a walk over the keys of BEST_EFFORT counters: partition by partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CachePosition {
    partition: usize,
    within: ScanPosition,
}

impl CachePosition {
    pub(super) fn parse(token: &str) -> Option<CachePosition> {
        if token.is_empty() {
            return Some(CachePosition::default());
        }
        let (partition, within) = token.split_once('.')?;
        Some(CachePosition { partition: partition.parse().ok()?, within: ScanPosition::parse(within)? })
    }

    pub(super) fn token(self) -> String {
        format!("{}.{}", self.partition, self.within)
    }
}

fn written(reply: Value) -> Result<(), Refusal> {
    match reply {
        Value::Int(_) => Ok(()),
        Value::ServerError(error) if error.details().is_some_and(|text| text.contains("overflow")) => {
            Err(Refusal::Overflow)
        }
        Value::ServerError(error) => Err(of_link(error.into())),
        other => Err(defect(&format!("{other:?} to a write"))),
    }
}
