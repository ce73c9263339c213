//! All that can be seen of one queue, on both sides: configuration, counts, lists, events, and the scrubber's word.

use crate::property::compare::{Outcome, same};
use crate::property::sides::{WholeOracle, WholeRedis};
use std::collections::{BTreeMap, BTreeSet};
use tallystone_model::state::is_arrow;
use tallystone_model::*;
use tallystone_tests::{KEY, Probe};

/// Small, so that the lists of small queues go over several pages.
const PAGE_ITEMS: usize = 3;
const PAGE_ITEMS_OF_MANY: usize = 700;

/// Compares the whole queue, and checks it. `numbers`: of all shards that it had.
pub(super) async fn compare(
    oracle: &WholeOracle,
    redis: &WholeRedis,
    shard: &Shard,
    numbers: std::ops::Range<u16>,
) -> Outcome {
    for shard in numbers.map(|number| shard.sibling(number)) {
        follow(&oracle.inner().outbox(&shard).await, &redis.inner().outbox(&shard).await)?;
    }
    let queue = oracle.get_queue(&shard.queue).await;
    same("the queue", &queue, &redis.get_queue(&shard.queue).await)?;
    let listed = redis.list_queues(shard.queue.as_str(), "", 2).await.map(|page| page.items);
    same("the list of queues", &oracle.list_queues(shard.queue.as_str(), "", 2).await.map(|page| page.items), &listed)?;
    let Ok(queue) = queue else { return Ok(()) };
    let layout = queue.layout();
    let depth = oracle.depth(shard, None).await;
    same("the depth", &depth, &redis.depth(shard, None).await)?;
    same("the ages", &oracle.ages(shard).await, &redis.ages(shard).await)?;
    let page_items = if depth.is_ok_and(|depth| depth.live() < 50) { PAGE_ITEMS } else { PAGE_ITEMS_OF_MANY };
    let (mut messages, mut ids, mut shards_of_values) = (0, BTreeSet::new(), BTreeMap::new());
    for state in State::ALL {
        let (theirs, ours) =
            (list(oracle, shard, state, page_items).await?, list(redis, shard, state, page_items).await?);
        messages += ours.len() as u64;
        let twice = ours.iter().find(|message| !ids.insert(message.id.clone()));
        if let Some(twice) = twice.filter(|_| queue.config.queue_type.key().is_none()) {
            return Err(format!("the id of a simple queue is that of two messages: {twice:?}"));
        }
        if layout.is_plain() {
            same(&format!("the list of {state} messages"), &in_order(state, theirs)?, &in_order(state, ours)?)?;
            continue;
        }
        let mut of_shards = Vec::new();
        for shard in queue.shards() {
            // Each shard alone is a queue of one.
            let (theirs, ours) = (
                list(&**oracle.inner(), &shard, state, 1_000).await?,
                list(&**redis.inner(), &shard, state, 1_000).await?,
            );
            same(
                &format!("the list of {state} messages in a shard"),
                &in_order(state, theirs)?,
                &in_order(state, ours.clone())?,
            )?;
            // Exclusivity holds within a shard (Q17).
            for value in ours
                .iter()
                .filter(|_| !state.is_terminal())
                .filter_map(|message| queue.config.queue_type.value_of(&message.metadata))
            {
                let number = *shards_of_values.entry(value.to_owned()).or_insert(shard.number);
                same(&format!("the shard of the live messages of '{value}'"), &number, &shard.number)?;
            }
            of_shards.extend(ours);
        }
        same(&format!("the list of {state} messages over all shards"), &of_shards, &ours)?;
    }
    let (mut cursor, mut checked) = (String::new(), 0);
    loop {
        let (looked, page) = redis.check(shard, &cursor).await.map_err(|error| format!("the scrubber: {error}"))?;
        same("what the scrubber finds", &Vec::new(), &page.items)?;
        checked += looked;
        if page.next_cursor.is_empty() {
            break;
        }
        cursor = page.next_cursor;
    }
    if checked < messages {
        return Err(format!("the scrubber checked {checked} of {messages} messages"));
    }
    Ok(())
}

async fn list<S: Store>(store: &S, shard: &Shard, state: State, page_items: usize) -> Result<Vec<Message>, String> {
    let (mut messages, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = store.list_messages(shard, state, &cursor, page_items).await;
        let page = page.map_err(|error| format!("the list of {state} messages: {error}"))?;
        messages.extend(page.items);
        if page.next_cursor.is_empty() {
            return Ok(messages);
        }
        cursor = page.next_cursor;
    }
}

/// Checks the order that the contract promises, then brings what it leaves open into one order.
fn in_order(state: State, mut messages: Vec<Message>) -> Result<Vec<Message>, String> {
    let time = |message: &Message| if state.is_terminal() { message.state_since_ms } else { message.due_ms };
    if state == State::Pending {
        // Which values come first behind the heads is open; within a value the order is not.
        let mut groups: BTreeMap<Option<String>, Vec<Message>> = BTreeMap::new();
        for message in messages {
            groups.entry(message.metadata.get(KEY).map(str::to_owned)).or_default().push(message);
        }
        return Ok(groups.into_values().flatten().collect());
    }
    if !messages.is_sorted_by_key(time) {
        return Err(format!("the list of {state} messages is out of order: {messages:?}"));
    }
    messages.sort_by(|a, b| (time(a), &a.id).cmp(&(time(b), &b.id)));
    Ok(messages)
}

/// Compares the events of each message, and follows them: known arrows, no version left out, each from where the
/// last one led (Q5, Q6, Q15).
fn follow(oracle: &[Event], redis: &[Event]) -> Outcome {
    let (theirs, ours) = (by_message(oracle), by_message(redis));
    for (id, events) in &theirs {
        let found = ours.get(id).map(Vec::as_slice).unwrap_or_default();
        let at = events.iter().zip(found).take_while(|(a, b)| a == b).count();
        same(&format!("event {at} of '{id}'"), &events.get(at), &found.get(at))?;
    }
    same("the number of events", &oracle.len(), &redis.len())?;
    let mut last: BTreeMap<(&MessageId, u64), &Event> = BTreeMap::new();
    for event in redis {
        let before = last.insert((&event.id, event.sequence), event);
        let (version, from) = before.map_or((0, None), |before| (before.version, before.to));
        let starts_right = before.is_some() == event.from.is_some();
        if !is_arrow(event.from, event.to, event.by)
            || (version + 1, from) != (event.version, event.from)
            || !starts_right
        {
            return Err(format!("this event follows wrongly: {event:?}\n    after {before:?}"));
        }
    }
    Ok(())
}

fn by_message(events: &[Event]) -> BTreeMap<&MessageId, Vec<&Event>> {
    let mut by_message: BTreeMap<&MessageId, Vec<&Event>> = BTreeMap::new();
    for event in events {
        by_message.entry(&event.id).or_default().push(event);
    }
    by_message
}
