//! Synthetic events, as a busy queue has them: thousands of messages wait, a few run, and ended ones stay for a while.

use anyhow::Result;
use std::collections::BTreeMap;
use tallystone_model::{Cause, Event, MessageId, Metadata, QueueName, Recorded, Shard, State};

/// Messages enqueued between enqueue and lease, lease and end, end and collection of one message.
const WAITING: u64 = 5_000;
const RUNNING: u64 = 50;
const ENDED: u64 = 20_000;
/// Messages enqueued per second of the synthetic clock.
const PER_SECOND: u64 = 2_000;
/// The start of the synthetic clock, in 2023.
const START_MS: u64 = 1_700_000_000_000;
/// Events of one life.
pub(crate) const EVENTS: u64 = 4;

/// All events of a queue, message after message enqueued, four for each.
pub(crate) struct Lives {
    shard: Shard,
    /// Messages enqueued so far.
    enqueued: u64,
    offset: u64,
}

impl Lives {
    pub(crate) fn new(queue: &str) -> Result<Self> {
        let queue = QueueName::parse("queue", queue)?;
        Ok(Lives { shard: Shard::first(&queue), enqueued: 0, offset: 0 })
    }

    /// The queue of the events.
    pub(crate) fn queue(&self) -> &QueueName {
        &self.shard.queue
    }

    /// The next events, at least this many.
    pub(crate) fn next(&mut self, events: usize) -> Vec<Recorded> {
        let mut batch = Vec::with_capacity(events + EVENTS as usize);
        while batch.len() < events {
            let number = self.enqueued;
            self.enqueued += 1;
            let ages = [0, WAITING, WAITING + RUNNING, WAITING + RUNNING + ENDED];
            for (version, age) in ages.into_iter().enumerate() {
                if let Some(number) = number.checked_sub(age) {
                    self.offset += 1;
                    let event = event(number, version as u32 + 1, number + age);
                    batch.push(Recorded { shard: self.shard.clone(), offset: self.offset, event });
                }
            }
        }
        batch
    }

    /// The synthetic clock.
    pub(crate) fn now_ms(&self) -> u64 {
        at_ms(self.enqueued)
    }

    /// Messages enqueued so far.
    pub(crate) fn messages(&self) -> u64 {
        self.enqueued
    }
}

/// The id of a message: a UUID of version 7, as most senders make them, of the time and a number spread.
pub(crate) fn id(number: u64) -> MessageId {
    let (time, spread) = (at_ms(number), number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let (first, second) = (time >> 16, time & 0xffff);
    let text = format!("{first:08x}-{second:04x}-7{:03x}-8000-{:012x}", spread >> 52, spread & 0xffff_ffff_ffff);
    MessageId::parse("id", text).expect("a valid id")
}

/// The number of the message of an event.
pub(crate) fn number(event: &Event) -> u64 {
    (event.sequence - START_MS * 1_000) / 2
}

fn at_ms(moment: u64) -> u64 {
    START_MS + moment * 1_000 / PER_SECOND
}

fn event(number: u64, version: u32, moment: u64) -> Event {
    let (from, to, by) = match version {
        1 => (None, Some(State::Pending), Cause::Enqueue),
        2 => (Some(State::Pending), Some(State::Running), Cause::Dequeue),
        3 => (Some(State::Running), Some(State::Completed), Cause::Complete),
        _ => (Some(State::Completed), None, Cause::Collect),
    };
    let since = [0, 0, WAITING, WAITING + RUNNING][version as usize - 1];
    let is_leased = version > 1;
    let pair = |key: &str, value: u64| (key.to_owned(), format!("{key}-{value}"));
    let pairs = BTreeMap::from([pair("carrier", number % 16), pair("tail", number % 4_001), pair("to", number % 307)]);
    Event {
        id: id(number),
        version,
        from,
        to,
        by,
        at_ms: at_ms(moment),
        from_since_ms: if is_leased { at_ms(number + since) } else { 0 },
        since_ms: if to.is_none() { at_ms(number + since) } else { at_ms(moment) },
        sequence: START_MS * 1_000 + number * 2,
        enqueued_at_ms: at_ms(number),
        priority: (number % 1_000) as i64,
        metadata: Metadata::parse(pairs).expect("valid metadata"),
        attempts: u32::from(is_leased),
        fencing_token: if is_leased { START_MS * 1_000 + number * 2 + 1 } else { 0 },
        worker: if is_leased { format!("worker-{:02}@gate", number % 50) } else { String::new() },
        due_ms: if version == 2 { at_ms(moment) + 30_000 } else { 0 },
        reason: String::new(),
        last_reason: String::new(),
        coalesced: false,
        payload: None,
        result: Default::default(),
    }
}
