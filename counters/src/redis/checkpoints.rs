//! The rollup store: one hash of each shard, a counter's checkpoint in its home shard.

use super::{RedisNamespace, call, defect, record};
use crate::checkpoints::{Checkpoint, CheckpointUpdate, Checkpoints, Commit};
use crate::names::CounterName;
use crate::namespace::{Placement, SHARDS};
use crate::refusal::Refusal;
use futures::future::try_join_all;
use tallystone_lua::counter::{Answer, CounterScript};

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
                Answer::Ok => Ok(Commit::Done),
                Answer::Lost => Ok(Commit::Lost),
                other => Err(defect(&format!("{other:?} to a commit"))),
            };
            let answers = numbers.iter().map(answer).collect::<Result<Vec<Commit>, Refusal>>()?;
            Ok::<_, Refusal>((numbers, answers))
        };
        in_order(updates.len(), try_join_all(homes(updates.iter().map(|step| &step.counter)).map(commit)).await?)
    }
}

/// Each shard that is the home of some of these counters, with their numbers.
pub(super) fn homes<'a>(counters: impl Iterator<Item = &'a CounterName>) -> impl Iterator<Item = (u16, Vec<usize>)> {
    let mut shards: [Vec<usize>; SHARDS as usize] = Default::default();
    for (number, counter) in counters.enumerate() {
        shards[usize::from(Placement::of(counter).home())].push(number);
    }
    (0..SHARDS).zip(shards).filter(|(_, numbers)| !numbers.is_empty())
}

/// Answers to the items with these numbers, in the order of the items.
pub(super) fn in_order<A>(items: usize, answers: Vec<(Vec<usize>, Vec<A>)>) -> Result<Vec<A>, Refusal> {
    let mut all: Vec<(usize, A)> =
        answers.into_iter().flat_map(|(numbers, answers)| numbers.into_iter().zip(answers)).collect();
    all.sort_by_key(|(number, _)| *number);
    match all.len() == items {
        true => Ok(all.into_iter().map(|(_, answer)| answer).collect()),
        false => Err(defect("too little")),
    }
}
