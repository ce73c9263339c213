//! The rollup store: one hash in each shard; a counter's checkpoint is in its home shard.

use super::calls::{call, defect};
use super::fan_out::{homes, in_order};
use super::{RedisNamespace, record};
use crate::checkpoints::{Checkpoint, CheckpointUpdate, Checkpoints, Commit};
use crate::names::CounterName;
use crate::refusal::Refusal;
use futures::future::try_join_all;
use tallystone_lua::counter::{CounterAnswer, CounterScript};

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
            let mut command = call(CounterScript::Commit, &[self.keys(shard).counts()]);
            for CheckpointUpdate { counter, before, after } in numbers.iter().map(|number| &updates[*number]) {
                command.arg(counter.as_str()).arg(before.exact_to_ms).arg(record::encode_checkpoint(after));
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
