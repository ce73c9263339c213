//! The rules about all shards of a queue, whose number may change meanwhile (Q17, docs/decisions/0268).
//!
//! They read the events that survive, in the order in which Redis wrote them: so after each of them the state is one that Redis had.

use super::history::{History, QueueMessage, is_seen_grant, message_of, value_of};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tallystone_model::{MessageId, State, fencing};

pub(super) fn exclusive_values(history: &History) -> Vec<String> {
    let mut running = HashMap::new();
    let mut found = Vec::new();
    for recorded in history.surviving() {
        let event = &recorded.event;
        let Some(value) = value_of(event) else { continue };
        let (key, own) = ((&recorded.shard.queue, value), (recorded.shard.number, &event.id));
        if event.to == Some(State::Running) {
            match running.insert(key, own) {
                Some(other) if other != own => {
                    found.push(format!("{other:?} and {own:?} of value {value} run at once: {event:?}"));
                }
                _ => {}
            }
        } else if running.get(&key) == Some(&own) {
            running.remove(&key);
        }
    }
    found
}

pub(super) fn values_in_one_shard(history: &History) -> Vec<String> {
    let mut live: HashMap<_, BTreeMap<u16, BTreeSet<&MessageId>>> = HashMap::new();
    let mut found = Vec::new();
    for recorded in history.surviving() {
        let (event, number) = (&recorded.event, recorded.shard.number);
        let Some(value) = value_of(event) else { continue };
        let shards = live.entry((&recorded.shard.queue, value)).or_default();
        let of_shard = shards.entry(number).or_default();
        if event.to.is_some_and(State::is_live) {
            of_shard.insert(&event.id);
        } else {
            of_shard.remove(&event.id);
        }
        shards.retain(|_, ids| !ids.is_empty());
        if shards.len() > 1 && shards.contains_key(&number) {
            found.push(format!("value {value} of {} has live messages in {shards:?}: {event:?}", recorded.shard.queue));
        }
    }
    found
}

/// Of the leases that a caller saw. Where a failover has lost a change of the number of shards, later tokens of earlier shards are lower
/// than those that were lost with it.
pub(super) fn value_tokens_rise(history: &History) -> Vec<String> {
    let seen = history.seen_leases();
    let mut last = HashMap::new();
    let mut found = Vec::new();
    for recorded in history.surviving().filter(|recorded| is_seen_grant(recorded, &seen)) {
        let event = &recorded.event;
        let Some(value) = value_of(event) else { continue };
        let last = last.entry((&recorded.shard.queue, value)).or_insert(0);
        let number = u64::from(recorded.shard.number);
        let may_fall = history.forked.contains(&recorded.shard) && fencing::shard_of(*last) == number;
        if event.fencing_token <= *last && !may_fall {
            found.push(format!("value {value} got token {} after {last}: {event:?}", event.fencing_token));
        }
        *last = event.fencing_token.max(*last);
    }
    found
}

pub(super) fn messages_in_one_shard(history: &History) -> Vec<String> {
    let mut shards: HashMap<QueueMessage, BTreeSet<u16>> = HashMap::new();
    let mut found = Vec::new();
    for recorded in history.surviving() {
        let numbers = shards.entry(message_of(recorded)).or_default();
        match recorded.event.to {
            Some(_) => numbers.insert(recorded.shard.number),
            None => numbers.remove(&recorded.shard.number),
        };
        if numbers.len() > 1 && recorded.event.to.is_some() {
            found.push(format!("a message is in the shards {numbers:?}: {:?}", recorded.event));
        }
    }
    found
}
