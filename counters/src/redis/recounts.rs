//! The recounts of counters: one hash in each shard; those of a counter are in its home shard, as JSON.

use super::calls::defect;
use super::{RedisNamespace, record};
use crate::checkpoints::{Checkpoint, Commit};
use crate::crossings::passed;
use crate::names::CounterName;
use crate::namespace::Placement;
use crate::recount::{Recounted, Recounts};
use crate::refusal::Refusal;
use tallystone_lua::counter::{CounterAnswer, CounterScript, RECOUNTS};

impl Recounts for RedisNamespace {
    async fn recounts(&self, counter: &CounterName) -> Result<Vec<Recounted>, Refusal> {
        let shard = Placement::of(counter).home();
        let mut command = redis::cmd("HGET");
        command.arg(self.keys(shard).key(RECOUNTS)).arg(counter.as_str());
        let json: Option<Vec<u8>> = self.query(shard, &command).await?;
        let decode = |json: Vec<u8>| serde_json::from_slice(&json).map_err(|_| defect("unreadable recounts"));
        json.map_or(Ok(Vec::new()), decode)
    }

    async fn replace(
        &self,
        counter: &CounterName,
        before: &Checkpoint,
        after: &Checkpoint,
        recounts: &[Recounted],
    ) -> Result<Commit, Refusal> {
        let json = serde_json::to_vec(recounts).map_err(|error| Refusal::Internal(error.to_string()))?;
        self.replace_with(counter, before, after, &json).await
    }

    async fn follow(&self, counter: &CounterName, before: &Checkpoint, after: &Checkpoint) -> Result<Commit, Refusal> {
        self.replace_with(counter, before, after, &[]).await
    }

    fn time_ms(&self) -> u64 {
        self.now_ms()
    }
}

impl RedisNamespace {
    /// `recounts`: empty, those of the counter stay.
    async fn replace_with(
        &self,
        counter: &CounterName,
        before: &Checkpoint,
        after: &Checkpoint,
        recounts: &[u8],
    ) -> Result<Commit, Refusal> {
        let shard = Placement::of(counter).home();
        let mut command = self.log_call(CounterScript::Recount, shard, &self.commit_keys(shard));
        command.arg(counter.as_str()).arg(record::stand_of(before)).arg(record::encode_checkpoint(after)).arg(recounts);
        command.arg(record::encode_crossing(after, &passed(&self.config.thresholds, counter, before, after)));
        command.arg(self.config.waits_since_ms(after.exact_to_ms));
        match self.run_any(shard, &command).await?.answer {
            CounterAnswer::Ok => Ok(Commit::Done),
            CounterAnswer::Lost => Ok(Commit::Lost),
            CounterAnswer::Stale | CounterAnswer::NoShard => Err(Refusal::Stale),
            other => Err(defect(&format!("{other:?} to a recount"))),
        }
    }
}
