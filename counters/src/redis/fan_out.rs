//! One call on several counters is a call of each shard that has some of them: spread over shards, and the replies put in
//! order again.

use super::calls::defect;
use crate::names::CounterName;
use crate::namespace::{NamespaceConfig, Placement, SHARDS};
use crate::refusal::Refusal;

/// The home shards of these counters, with the counters' indices.
pub(super) fn homes<'a>(counters: impl Iterator<Item = &'a CounterName>) -> impl Iterator<Item = (u16, Vec<usize>)> {
    let mut shards: [Vec<usize>; SHARDS as usize] = Default::default();
    for (index, counter) in counters.enumerate() {
        shards[usize::from(Placement::of(counter).home())].push(index);
    }
    occupied(shards)
}

/// Every shard that can have something of these counters, with the counters' indices.
pub(super) fn shards_of<'a>(
    counters: impl IntoIterator<Item = &'a CounterName>,
    config: &NamespaceConfig,
) -> impl Iterator<Item = (u16, Vec<usize>)> {
    let mut shards: [Vec<usize>; SHARDS as usize] = Default::default();
    for (index, counter) in counters.into_iter().enumerate() {
        for shard in Placement::of(counter).shards(config) {
            shards[usize::from(shard)].push(index);
        }
    }
    occupied(shards)
}

fn occupied(shards: [Vec<usize>; SHARDS as usize]) -> impl Iterator<Item = (u16, Vec<usize>)> {
    (0..SHARDS).zip(shards).filter(|(_, indices)| !indices.is_empty())
}

/// The names of the counters with these indices.
pub(super) fn names<'a>(counters: &'a [CounterName], indices: &[usize]) -> Vec<&'a str> {
    indices.iter().map(|index| counters[*index].as_str()).collect()
}

/// The replies to items, in the order of the items: each shard's replies come with the indices of its items.
pub(crate) fn in_order<R>(items: usize, replies: Vec<(Vec<usize>, Vec<R>)>) -> Result<Vec<R>, Refusal> {
    let mut all: Vec<(usize, R)> =
        replies.into_iter().flat_map(|(indices, replies)| indices.into_iter().zip(replies)).collect();
    all.sort_by_key(|(index, _)| *index);
    match all.len() == items {
        true => Ok(all.into_iter().map(|(_, reply)| reply).collect()),
        false => Err(defect("too few replies")),
    }
}

/// What each shard replied to the counters with these indices, by counter: the replies of its shards.
pub(super) fn by_counter<R>(counters: usize, replies: Vec<(u16, Vec<usize>, Vec<R>)>) -> Vec<Vec<(u16, R)>> {
    let mut by_counter: Vec<Vec<(u16, R)>> = (0..counters).map(|_| Vec::new()).collect();
    for (shard, indices, replies) in replies {
        for (index, reply) in indices.into_iter().zip(replies) {
            by_counter[index].push((shard, reply));
        }
    }
    by_counter
}
