//! The rollup store: one hash of each shard, a counter's checkpoint in its home shard.

use super::{RedisNamespace, Reply, call, defect, of_link, record};
use crate::checkpoints::{Checkpoint, Checkpoints, Commit};
use crate::names::CounterName;
use crate::namespace::Place;
use crate::refusal::Refusal;
use redis::Value;
use tallystone_lua::counter::{Answer, CounterScript};

impl Checkpoints for RedisNamespace {
    async fn read(&self, counter: &CounterName) -> Result<Checkpoint, Refusal> {
        let key = self.keys(Place::of(counter).home()).counts();
        match self.link.call(redis::cmd("HGET").arg(key).arg(counter.as_str())).await.map_err(of_link)? {
            Value::Nil => Ok(Checkpoint::default()),
            Value::BulkString(raw) => record::decode_checkpoint(&raw),
            _ => Err(defect("no checkpoint")),
        }
    }

    async fn commit(&self, counter: &CounterName, before: Checkpoint, after: Checkpoint) -> Result<Commit, Refusal> {
        let mut command = call(CounterScript::Commit, &[self.keys(Place::of(counter).home()).counts()]);
        command.arg(counter.as_str()).arg(before.exact_to_ms).arg(record::encode_checkpoint(&after));
        let mut reply: Reply = self.run(&command).await?;
        match reply.answer()? {
            Answer::Ok => Ok(Commit::Done),
            Answer::Lost => Ok(Commit::Lost),
            other => Err(defect(&format!("{other:?} to a commit"))),
        }
    }
}
