//! The rules about all shards of a queue, whose number may change meanwhile (Q17, docs/decisions/0268).
//!
//! They read the events that survive, in the order in which Redis wrote them: so after each of them the state is one that Redis had.
//!
//! A server sends a message to a new shard after a closed one has answered that it has no message of its value, or id, or when it has read
//! that the closed one is removed. If a failover then loses the writes that emptied the closed shard, both shards have messages of the
//! value. A server that waits for all replicas is safe from this (docs/scale.md). The servers of an episode do not wait, so the rules excuse a
//! shard that got messages back.

use super::history::{History, QueueMessage, is_seen_grant, message_of, value_of};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use tallystone_model::{MessageId, QueueName, State, fencing};

/// What failovers brought back: the values, and the messages, with the numbers of their shards.
struct Returned<'a> {
    values: HashSet<(&'a QueueName, &'a str, u16)>,
    messages: HashSet<(QueueMessage, u16)>,
}

impl Returned<'_> {
    fn of(history: &History) -> Returned<'_> {
        let mut returned = Returned { values: HashSet::new(), messages: HashSet::new() };
        for written in history.written.iter().filter(|written| written.is_lost) {
            let (event, shard) = (&written.recorded.event, &written.recorded.shard);
            if let Some(value) = value_of(event).filter(|_| !event.to.is_some_and(State::is_live)) {
                returned.values.insert((&shard.queue, value, shard.number));
            }
            if event.to.is_none() {
                returned.messages.insert((message_of(&written.recorded), shard.number));
            }
        }
        returned
    }
}

pub(super) fn exclusive_values(history: &History) -> Vec<String> {
    let returned = Returned::of(history);
    let mut running = HashMap::new();
    let mut found = Vec::new();
    for recorded in history.surviving() {
        let event = &recorded.event;
        let Some(value) = value_of(event) else { continue };
        let (key, own) = ((&recorded.shard.queue, value), (recorded.shard.number, &event.id));
        if event.to == Some(State::Running) {
            let is_excused = |number| returned.values.contains(&(key.0, value, number));
            match running.insert(key, own) {
                Some(other) if other.0 != own.0 && (is_excused(other.0) || is_excused(own.0)) => {}
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
    let returned = Returned::of(history);
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
        let is_excused = |number: &u16| returned.values.contains(&(&recorded.shard.queue, value, *number));
        if shards.len() > 1 && shards.contains_key(&number) && !shards.keys().any(is_excused) {
            found.push(format!("value {value} of {} has live messages in {shards:?}: {event:?}", recorded.shard.queue));
        }
    }
    found
}

/// Judges only leases that a caller saw: where a failover has lost a change of the number of shards, later tokens of earlier shards are
/// lower than those that were lost with it.
pub(super) fn value_tokens_rise(history: &History) -> Vec<String> {
    let (returned, seen) = (Returned::of(history), history.seen_leases());
    let mut last = HashMap::new();
    let mut found = Vec::new();
    for recorded in history.surviving().filter(|recorded| is_seen_grant(recorded, &seen)) {
        let event = &recorded.event;
        let Some(value) = value_of(event) else { continue };
        let last = last.entry((&recorded.shard.queue, value)).or_insert(0);
        let number = u64::from(recorded.shard.number);
        let may_fall = match fencing::shard_of(*last) == number {
            true => history.forked.contains(&recorded.shard),
            false => returned.values.contains(&(&recorded.shard.queue, value, recorded.shard.number)),
        };
        if event.fencing_token <= *last && !may_fall {
            found.push(format!("value {value} got token {} after {last}: {event:?}", event.fencing_token));
        }
        *last = event.fencing_token.max(*last);
    }
    found
}

pub(super) fn messages_in_one_shard(history: &History) -> Vec<String> {
    let returned = Returned::of(history);
    let mut shards: HashMap<QueueMessage, BTreeSet<u16>> = HashMap::new();
    let mut found = Vec::new();
    for recorded in history.surviving() {
        let numbers = shards.entry(message_of(recorded)).or_default();
        match recorded.event.to {
            Some(_) => numbers.insert(recorded.shard.number),
            None => numbers.remove(&recorded.shard.number),
        };
        let is_excused = |number: &u16| returned.messages.contains(&(message_of(recorded), *number));
        if numbers.len() > 1 && recorded.event.to.is_some() && !numbers.iter().any(is_excused) {
            found.push(format!("a message is in the shards {numbers:?}: {:?}", recorded.event));
        }
    }
    found
}
