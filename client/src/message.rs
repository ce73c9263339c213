//! Messages as their senders describe them, and their states.

use crate::client::{new_id, wire_ms};
use crate::error::Result;
use bytes::Bytes;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use tallystone_proto::queue::v1 as wire;

/// Where a message is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Accepted, not yet visible to Dequeue.
    Invisible,
    /// Waiting to be leased.
    Pending,
    /// Leased to one worker.
    Running,
    /// Ended with success.
    Completed,
    /// Taken out.
    Canceled,
    /// Ended because its attempts were spent.
    Errored,
}

impl State {
    /// All six, in the order of a life.
    pub const ALL: [State; 6] =
        [State::Invisible, State::Pending, State::Running, State::Completed, State::Canceled, State::Errored];

    /// Lower case.
    pub fn name(self) -> &'static str {
        match self {
            State::Invisible => "invisible",
            State::Pending => "pending",
            State::Running => "running",
            State::Completed => "completed",
            State::Canceled => "canceled",
            State::Errored => "errored",
        }
    }

    pub(crate) fn from_wire(state: i32) -> Option<State> {
        Some(match wire::State::try_from(state).ok()? {
            wire::State::Unspecified => return None,
            wire::State::Invisible => State::Invisible,
            wire::State::Pending => State::Pending,
            wire::State::Running => State::Running,
            wire::State::Completed => State::Completed,
            wire::State::Canceled => State::Canceled,
            wire::State::Errored => State::Errored,
        })
    }

    pub(crate) fn to_wire(self) -> wire::State {
        match self {
            State::Invisible => wire::State::Invisible,
            State::Pending => wire::State::Pending,
            State::Running => wire::State::Running,
            State::Completed => wire::State::Completed,
            State::Canceled => wire::State::Canceled,
            State::Errored => wire::State::Errored,
        }
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for State {
    type Err = String;

    fn from_str(name: &str) -> Result<State, String> {
        let known = State::ALL.into_iter().find(|state| state.name() == name);
        known.ok_or_else(|| format!("'{name}' is no state; one of {}", State::ALL.map(State::name).join(", ")))
    }
}

/// A message to enqueue.
///
/// The id makes Enqueue idempotent: the same id with the same content is the same message, with other content
/// it is refused (`ID_CONFLICT`). Name it after what it stands for, or let [`NewMessage::unnamed`] draw one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMessage {
    /// 1 to 200 bytes, no control characters, unique in its queue.
    pub id: String,
    /// Opaque, up to 32 KiB.
    pub payload: Bytes,
    /// Lower runs first; the norm is a deadline in Unix ms. Equal priorities run in order of arrival.
    pub priority: i64,
    /// Up to 4 pairs; key 1 to 64 bytes, value 1 to 255 bytes.
    pub metadata: BTreeMap<String, String>,
    /// Overrides the queue's lease.
    pub lease_ms: Option<u64>,
    /// Overrides the queue's invisibility; 0 is visible at once.
    pub invisibility_ms: Option<u64>,
    /// Overrides the queue's max attempts.
    pub max_attempts: Option<u32>,
    /// A live message with this id stands for this one.
    pub coalesce: bool,
}

impl NewMessage {
    /// A message of priority 0 without metadata, to build on.
    pub fn new(id: impl Into<String>, payload: impl Into<Bytes>) -> Self {
        NewMessage {
            id: id.into(),
            payload: payload.into(),
            priority: 0,
            metadata: BTreeMap::new(),
            lease_ms: None,
            invisibility_ms: None,
            max_attempts: None,
            coalesce: false,
        }
    }

    /// A message whose id is drawn now (a UUIDv7). Keep the value and enqueue it again, and it is the same message.
    pub fn unnamed(payload: impl Into<Bytes>) -> Self {
        NewMessage::new(new_id(), payload)
    }

    /// Lower runs first.
    #[must_use]
    pub fn priority(mut self, priority: i64) -> Self {
        self.priority = priority;
        self
    }

    /// Adds one pair.
    #[must_use]
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// How long a worker holds it, rather than the queue's default.
    #[must_use]
    pub fn lease_ms(mut self, lease_ms: u64) -> Self {
        self.lease_ms = Some(lease_ms);
        self
    }

    /// How long nobody sees it, rather than the queue's default.
    #[must_use]
    pub fn invisibility_ms(mut self, invisibility_ms: u64) -> Self {
        self.invisibility_ms = Some(invisibility_ms);
        self
    }

    /// How often it may run, rather than the queue's default.
    #[must_use]
    pub fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = Some(max_attempts);
        self
    }

    /// Let a live message with this id stand for this one: pending or invisible, it keeps its place or takes the
    /// more urgent priority; running, it goes back to pending when it completes.
    #[must_use]
    pub fn coalesce(mut self) -> Self {
        self.coalesce = true;
        self
    }

    pub(crate) fn into_wire(self) -> wire::NewMessage {
        wire::NewMessage {
            id: if self.id.is_empty() { new_id() } else { self.id },
            payload: self.payload,
            priority: self.priority,
            metadata: self.metadata,
            lease_ms: self.lease_ms.map(wire_ms),
            invisibility_ms: self.invisibility_ms.map(wire_ms),
            max_attempts: self.max_attempts.map(|attempts| i32::try_from(attempts).unwrap_or(i32::MAX)),
            coalesce: self.coalesce,
        }
    }
}

/// An accepted message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Enqueued {
    /// Its id.
    pub id: String,
    /// When the message (the first of this id) was accepted.
    pub enqueued_at_ms: u64,
}

/// A conjunction: a message passes if its metadata has every pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Filter(pub BTreeMap<String, String>);

impl Filter {
    /// One pair.
    pub fn equals(key: impl Into<String>, value: impl Into<String>) -> Self {
        Filter::default().and(key, value)
    }

    /// One pair more.
    #[must_use]
    pub fn and(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.insert(key.into(), value.into());
        self
    }

    pub(crate) fn into_wire(self) -> wire::Filter {
        wire::Filter { equals: self.0 }
    }
}

/// Bytes in JSON: a string where they are text, else a list of numbers.
pub(crate) fn text_or_bytes<S: Serializer>(payload: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    match std::str::from_utf8(payload) {
        Ok(text) => serializer.serialize_str(text),
        Err(_) => serializer.collect_seq(payload),
    }
}
