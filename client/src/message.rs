//! New messages, filters, and the states of messages.

use crate::error::Result;
use crate::wire::{new_id, wire_ms};
use bytes::Bytes;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use tallystone_proto::queue::v1 as wire;

/// The state of a message.
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
    /// Ended by Cancel.
    Canceled,
    /// Ended because its attempts were spent.
    Errored,
}

impl State {
    /// All six.
    pub const ALL: [State; 6] =
        [State::Invisible, State::Pending, State::Running, State::Completed, State::Canceled, State::Errored];

    /// The name in lower case.
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
        known.ok_or_else(|| format!("'{name}' is not a state; one of {}", State::ALL.map(State::name).join(", ")))
    }
}

/// A message to enqueue.
///
/// The id makes Enqueue repeatable: the same id with the same content is the same message; with other content it is
/// refused (`ID_CONFLICT`). Name the message after what it stands for, or let [`NewMessage::unnamed`] draw an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMessage {
    /// 1 to 200 bytes, no control characters, unique in its queue.
    pub id: String,
    /// Any bytes, up to 32 KiB.
    pub payload: Bytes,
    /// The lower number runs first. A deadline in Unix ms is the usual choice. Equal priorities run in order of arrival.
    pub priority: i64,
    /// One of the queue's priority classes, which sets the priority instead; see [`NewMessage::priority_class`].
    pub priority_class: Option<String>,
    /// Up to 4 pairs; key 1 to 64 bytes, value 1 to 255 bytes.
    pub metadata: BTreeMap<String, String>,
    /// The length of its leases; `None`: the queue's.
    pub lease_ms: Option<u64>,
    /// How long it stays invisible first; 0: not at all; `None`: the queue's.
    pub invisibility_ms: Option<u64>,
    /// How often it may be leased; `None`: the queue's.
    pub max_attempts: Option<u32>,
    /// A live message with this id stands for this one; see [`NewMessage::coalesce`].
    pub coalesce: bool,
}

impl NewMessage {
    /// A message of priority 0 without metadata.
    pub fn new(id: impl Into<String>, payload: impl Into<Bytes>) -> Self {
        NewMessage {
            id: id.into(),
            payload: payload.into(),
            priority: 0,
            priority_class: None,
            metadata: BTreeMap::new(),
            lease_ms: None,
            invisibility_ms: None,
            max_attempts: None,
            coalesce: false,
        }
    }

    /// A message with a new id (a UUIDv7). Enqueueing a clone of it again is a repetition, not a second message.
    pub fn unnamed(payload: impl Into<Bytes>) -> Self {
        NewMessage::new(new_id(), payload)
    }

    /// Sets the priority: the lower number runs first.
    #[must_use]
    pub fn priority(mut self, priority: i64) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the priority class, one of the queue's: the priority is the time of its first Enqueue, in Unix ms, plus the
    /// offset of the class. Leave the priority 0.
    #[must_use]
    pub fn priority_class(mut self, class: impl Into<String>) -> Self {
        self.priority_class = Some(class.into());
        self
    }

    /// Adds a pair of metadata.
    #[must_use]
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// The length of its leases, instead of the queue's.
    #[must_use]
    pub fn lease_ms(mut self, lease_ms: u64) -> Self {
        self.lease_ms = Some(lease_ms);
        self
    }

    /// How long it stays invisible first, instead of the queue's.
    #[must_use]
    pub fn invisibility_ms(mut self, invisibility_ms: u64) -> Self {
        self.invisibility_ms = Some(invisibility_ms);
        self
    }

    /// How often it may be leased, instead of the queue's.
    #[must_use]
    pub fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = Some(max_attempts);
        self
    }

    /// Lets a live message with this id stand for this one. A pending or invisible message keeps its place, or takes the
    /// more urgent priority. A running one returns to pending when it completes.
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
            priority_class: self.priority_class.unwrap_or_default(),
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
    /// When it was accepted; for a repetition, when the first of this id was.
    pub enqueued_at_ms: u64,
    /// The queue did not exist, and this call created it.
    pub queue_created: bool,
}

/// A conjunction: a message passes if its metadata has every pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Filter(pub BTreeMap<String, String>);

impl Filter {
    /// A filter of one pair.
    pub fn equals(key: impl Into<String>, value: impl Into<String>) -> Self {
        Filter::default().and(key, value)
    }

    /// Adds a pair.
    #[must_use]
    pub fn and(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.insert(key.into(), value.into());
        self
    }

    pub(crate) fn into_wire(self) -> wire::Filter {
        wire::Filter { equals: self.0 }
    }
}

/// Bytes in JSON: a string if they are UTF-8, else a list of numbers.
pub(crate) fn text_or_bytes<S: Serializer>(payload: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    match std::str::from_utf8(payload) {
        Ok(text) => serializer.serialize_str(text),
        Err(_) => serializer.collect_seq(payload),
    }
}
