//! The rollup store: one hash in each shard; a counter's checkpoint is in its home shard.

use super::calls::defect;
use super::fan_out::{homes, in_order};
use super::{RedisNamespace, record};
use crate::checkpoints::{Checkpoint, CheckpointUpdate, Checkpoints, Commit, Deletions, deletion_ahead};
use crate::crossings::passed;
use crate::log::{Pending, RollupLog};
use crate::names::CounterName;
use crate::namespace::{FUTURE_LIMIT_MS, Placement, SKEW_MS};
use crate::refusal::Refusal;
use futures::future::try_join_all;
use tallystone_lua::counter::{CounterAnswer, CounterScript, DELETED};

/// Marks that one call checks at most.
const FORGOTTEN_MAX: usize = 500;

impl Checkpoints for RedisNamespace {
    async fn read(&self, counters: &[CounterName]) -> Result<Vec<Checkpoint>, Refusal> {
        let read = async |(shard, numbers): (u16, Vec<usize>)| {
            let mut command = redis::cmd("HMGET");
            command.arg(self.keys(shard).counts());
            command.arg(numbers.iter().map(|number| counters[*number].as_str()).collect::<Vec<&str>>());
            let raws: Vec<Option<Vec<u8>>> = self.query(shard, &command).await?;
            let decode = |raw: &Option<Vec<u8>>| match raw {
                Some(raw) => record::decode_checkpoint(raw),
                None => Ok(Checkpoint::default()),
            };
            Ok::<_, Refusal>((numbers, raws.iter().map(decode).collect::<Result<Vec<Checkpoint>, Refusal>>()?))
        };
        in_order(counters.len(), try_join_all(homes(counters.iter()).map(read)).await?)
    }

    async fn commit(&self, updates: &[CheckpointUpdate]) -> Result<Vec<Commit>, Refusal> {
        let commit = async |(shard, numbers): (u16, Vec<usize>)| {
            let mut command = self.log_call(CounterScript::Commit, shard, &self.commit_keys(shard));
            for CheckpointUpdate { counter, before, after } in numbers.iter().map(|number| &updates[*number]) {
                let thresholds = passed(&self.config.thresholds, counter, before, after);
                command.arg(counter.as_str()).arg(record::stand_of(before)).arg(record::encode_checkpoint(after));
                command.arg(record::encode_crossing(after, &thresholds));
            }
            let mut reply = self.run(shard, &command).await?;
            let answer = |_: &usize| match reply.next_answer()? {
                CounterAnswer::Ok => Ok(Commit::Done),
                CounterAnswer::Lost => Ok(Commit::Lost),
                other => Err(defect(&format!("{other:?} to a commit"))),
            };
            let answers = numbers.iter().map(answer).collect::<Result<Vec<Commit>, Refusal>>()?;
            Ok::<_, Refusal>((numbers, answers))
        };
        in_order(updates.len(), try_join_all(homes(updates.iter().map(|step| &step.counter)).map(commit)).await?)
    }
}

impl Deletions for RedisNamespace {
    async fn delete(&self, counter: &CounterName, cleared_ms: u64) -> Result<(), Refusal> {
        let shard = Placement::of(counter).home();
        let mut command = self.log_call(CounterScript::Delete, shard, &self.commit_keys(shard));
        command.arg(FUTURE_LIMIT_MS + SKEW_MS).arg(counter.as_str()).arg(cleared_ms);
        let reply = self.run_any(shard, &command).await?;
        match reply.answer {
            CounterAnswer::Ok => Ok(()),
            CounterAnswer::TooEarly => Err(deletion_ahead()),
            CounterAnswer::Stale | CounterAnswer::NoShard => Err(Refusal::Stale),
            other => Err(defect(&format!("{other:?} to a deletion"))),
        }
    }

    async fn deleted_to(&self, counter: &CounterName) -> Result<Option<u64>, Refusal> {
        let shard = Placement::of(counter).home();
        let mut command = redis::cmd("ZSCORE");
        command.arg(self.keys(shard).key(DELETED)).arg(counter.as_str());
        let score: Option<f64> = self.query(shard, &command).await?;
        Ok(score.map(|ms| ms as u64))
    }
}

impl RedisNamespace {
    /// Whether a counter of a shard was deleted up to this time (Unix ms), and still has its mark.
    pub(super) async fn has_deleted(&self, shard: u16, deleted_to_ms: u64) -> Result<bool, Refusal> {
        let mut command = redis::cmd("ZCOUNT");
        command.arg(self.keys(shard).key(DELETED)).arg("-inf").arg(deleted_to_ms);
        self.query::<u64>(shard, &command).await.map(|count| count > 0)
    }

    /// Removes the marks of the counters of a shard that were deleted up to this time (Unix ms), and of which nothing is
    /// pending any more. What is pending was there before: nothing that old can be added.
    pub(super) async fn forget_deleted(&self, shard: u16, deleted_to_ms: u64) -> Result<(), Refusal> {
        let mut kept = 0;
        loop {
            let mut command = redis::cmd("ZRANGE");
            command.arg(self.keys(shard).key(DELETED)).arg("-inf").arg(deleted_to_ms).arg("BYSCORE");
            command.arg("LIMIT").arg(kept).arg(FORGOTTEN_MAX);
            let names: Vec<String> = self.query(shard, &command).await?;
            let found = names.into_iter().map(CounterName::parse).collect::<Result<Vec<CounterName>, Refusal>>()?;
            let pending = self.pending(&found).await?;
            let is_idle = |shards: &[(u16, Pending)]| shards.iter().all(|(_, pending)| pending.windows.is_empty());
            let idle: Vec<&str> = found
                .iter()
                .zip(&pending)
                .filter(|(_, shards)| is_idle(shards))
                .map(|(counter, _)| counter.as_str())
                .collect();
            if !idle.is_empty() {
                let mut command = self.log_call(CounterScript::Forget, shard, &self.keys(shard).home());
                command.arg(deleted_to_ms).arg(&idle);
                self.run(shard, &command).await?;
            }
            kept += found.len() - idle.len();
            if found.len() < FORGOTTEN_MAX {
                return Ok(());
            }
        }
    }
}
