//! Builds events: a [`Life`] is one message with its events, in the form in which a queue writes them.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use tallystone_model::state::is_arrow;
use tallystone_model::{Cause, Event, Metadata, QueueName, Recorded, Shard, State};

/// The default begin of a life: a time in 2023, Unix ms.
pub const BEGIN_MS: u64 = 1_700_000_000_000;

static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// A number that is unique in this process and higher than all before.
fn number() -> u64 {
    NUMBERS.fetch_add(1, Ordering::SeqCst)
}

/// One message and its events so far.
#[derive(Clone, Debug)]
pub struct Life {
    shard: Shard,
    /// The state before the next event.
    event: Event,
    events: Vec<Recorded>,
}

impl Life {
    /// A message that is not enqueued yet.
    pub fn new(queue: &QueueName, id: &str) -> Self {
        let event = Event {
            id: crate::build::id(id),
            version: 0,
            from: None,
            to: None,
            by: Cause::Enqueue,
            at_ms: BEGIN_MS,
            from_since_ms: 0,
            since_ms: 0,
            sequence: BEGIN_MS * 1_000 + number(),
            enqueued_at_ms: 0,
            priority: 0,
            metadata: Metadata::default(),
            attempts: 0,
            fencing_token: 0,
            worker: String::new(),
            due_ms: 0,
            reason: String::new(),
            last_reason: String::new(),
            coalesced: false,
            payload: None,
            result: Default::default(),
        };
        Life { shard: Shard::first(queue), event, events: Vec::new() }
    }

    /// In this shard.
    pub fn shard(mut self, number: u16) -> Self {
        self.shard.number = number;
        self
    }

    /// With this sequence.
    pub fn sequence(mut self, sequence: u64) -> Self {
        self.event.sequence = sequence;
        self
    }

    /// With this priority from now on.
    pub fn priority(mut self, priority: i64) -> Self {
        self.event.priority = priority;
        self
    }

    /// With this metadata.
    pub fn tagged(mut self, pairs: &[(&str, &str)]) -> Self {
        let pairs: BTreeMap<_, _> = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.event.metadata = Metadata::parse(pairs).expect("valid metadata");
        self
    }

    /// The first event carries this payload.
    pub fn payload(mut self, payload: &'static [u8]) -> Self {
        self.event.payload = Some(Bytes::from_static(payload));
        self
    }

    /// The next event happens at this time, Unix ms.
    pub fn at(mut self, at_ms: u64) -> Self {
        self.event.at_ms = at_ms;
        self
    }

    /// The next event happens this much later.
    pub fn after(mut self, ms: u64) -> Self {
        self.event.at_ms += ms;
        self
    }

    /// Enqueued, and pending at once.
    pub fn enqueued(mut self) -> Self {
        self.event.enqueued_at_ms = self.event.at_ms;
        self.step(Some(State::Pending), Cause::Enqueue, "")
    }

    /// Enqueued, and invisible for this long.
    pub fn enqueued_for(mut self, ms: u64) -> Self {
        self.event.enqueued_at_ms = self.event.at_ms;
        self.event.due_ms = self.event.at_ms + ms;
        self.step(Some(State::Invisible), Cause::Enqueue, "")
    }

    /// The window has elapsed.
    pub fn shown(self) -> Self {
        self.step(Some(State::Pending), Cause::WindowElapsed, "")
    }

    /// Leased to a worker for 30 seconds.
    pub fn leased(mut self, worker: &str) -> Self {
        self.event.worker = worker.to_owned();
        self.event.fencing_token = BEGIN_MS * 1_000 + number();
        self.event.attempts += 1;
        self.event.due_ms = self.event.at_ms + 30_000;
        self.step(Some(State::Running), Cause::Dequeue, "")
    }

    /// Its lease is extended to 30 seconds from now.
    pub fn extended(mut self) -> Self {
        self.event.due_ms = self.event.at_ms + 30_000;
        self.step(Some(State::Running), Cause::ExtendLease, "")
    }

    /// Released, and pending again.
    pub fn released(self, reason: &str) -> Self {
        self.step(Some(State::Pending), Cause::Release, reason)
    }

    /// Its lease ran out, and it is pending again.
    pub fn expired(self) -> Self {
        self.step(Some(State::Pending), Cause::LeaseExpired, "lease expired")
    }

    /// Released, its attempts spent.
    pub fn errored(self, reason: &str) -> Self {
        self.step(Some(State::Errored), Cause::Release, reason)
    }

    /// Completed.
    pub fn completed(self) -> Self {
        self.step(Some(State::Completed), Cause::Complete, "")
    }

    /// Completed, with a result.
    pub fn completed_with(mut self, result: &'static [u8]) -> Self {
        self.event.result = Bytes::from_static(result);
        self.completed()
    }

    /// Canceled.
    pub fn canceled(self, reason: &str) -> Self {
        self.step(Some(State::Canceled), Cause::Cancel, reason)
    }

    /// Its priority changes.
    pub fn reprioritized(mut self, priority: i64) -> Self {
        self.event.priority = priority;
        let state = self.event.to;
        self.step(state, Cause::UpdateMessage, "")
    }

    /// Collected.
    pub fn collected(self) -> Self {
        self.step(None, Cause::Collect, "")
    }

    /// Adds an event; panics if the transition table has no such arrow.
    fn step(mut self, to: Option<State>, by: Cause, reason: &str) -> Self {
        let event = &mut self.event;
        let from = if event.version == 0 { None } else { event.to };
        assert!(is_arrow(from, to, by), "the transition table has no arrow from {from:?} to {to:?} by {by:?}");
        (event.from, event.to, event.by) = (from, to, by);
        event.version += 1;
        event.from_since_ms = if from.is_some() { event.since_ms } else { 0 };
        if from != to && to.is_some() {
            event.since_ms = event.at_ms;
        }
        if !matches!(to, Some(State::Invisible | State::Running)) {
            event.due_ms = 0;
        }
        event.reason = reason.to_owned();
        if !reason.is_empty() {
            event.last_reason = reason.to_owned();
        }
        self.events.push(Recorded { shard: self.shard.clone(), offset: number(), event: event.clone() });
        event.payload = None;
        self
    }

    /// All events so far.
    pub fn events(&self) -> Vec<Recorded> {
        self.events.clone()
    }

    /// The last event.
    pub fn last(&self) -> &Recorded {
        self.events.last().expect("at least one event")
    }
}

/// The events of several lives, one life after the other.
pub fn events_of(lives: &[Life]) -> Vec<Recorded> {
    lives.iter().flat_map(Life::events).collect()
}
