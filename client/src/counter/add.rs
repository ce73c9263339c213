//! Adds and clears, their tokens, and their results. Times are Unix milliseconds.

use crate::wire::{from_wire, wire_ms};
use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};
use tallystone_proto::counter::v1 as wire;

/// Identifies an event (N3): the counter, the token and the time together. The same three count once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct IdempotencyToken {
    /// 1 to 64 bytes, no control characters.
    pub token: String,
    /// When the event happened. A retry must send the same time.
    pub generation_time_ms: u64,
}

impl IdempotencyToken {
    /// The token of an event that has a name and a time.
    pub fn new(token: impl Into<String>, generation_time_ms: u64) -> Self {
        IdempotencyToken { token: token.into(), generation_time_ms }
    }

    /// A new token (a UUIDv7), for an event that happens now by this machine's clock.
    pub fn now() -> Self {
        IdempotencyToken::drawn_for(now_ms())
    }

    /// A new token, for an event that happened at this time.
    pub fn drawn_for(generation_time_ms: u64) -> Self {
        IdempotencyToken::new(uuid::Uuid::now_v7().simple().to_string(), generation_time_ms)
    }

    fn into_wire(self) -> wire::IdempotencyToken {
        wire::IdempotencyToken { token: self.token, generation_time_ms: wire_ms(self.generation_time_ms) }
    }
}

/// An add to a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAdd {
    /// 1 to 128 bytes, no control characters.
    pub counter: String,
    /// What to add; may be negative.
    pub delta: i64,
    /// `None`: the client draws one ([why](crate::CounterClient#every-add-has-a-token)).
    pub token: Option<IdempotencyToken>,
    /// A negative delta is refused with `BOUND_REACHED` if it would make the count less than this (N18). A namespace allows
    /// bounds if it is ACCURATE and has one event bucket for each counter.
    pub min: Option<i64>,
    /// A positive delta is refused in the same way if it would make the count more than this. [`Refused::applied`](crate::Refused::applied)
    /// says whether the add may still count, because an attempt of the call has no answer.
    pub max: Option<i64>,
    /// Where the add comes from, at most 64 bytes, no control characters (N20). It is kept with the event, and
    /// [`CounterClient::audit_by`](crate::CounterClient::audit_by) groups by it. A retry must send the same one. Empty: none.
    pub source: String,
    /// What the add counts; the same limits and rules.
    pub event_item_key: String,
}

impl NewAdd {
    /// An add that happens now.
    pub fn new(counter: impl Into<String>, delta: i64) -> Self {
        let (source, event_item_key) = (String::new(), String::new());
        NewAdd { counter: counter.into(), delta, token: None, min: None, max: None, source, event_item_key }
    }

    /// Sets the token, so that the caller can repeat the add as the same event.
    #[must_use]
    pub fn token(mut self, token: IdempotencyToken) -> Self {
        self.token = Some(token);
        self
    }

    /// The add must not make the count less than this.
    #[must_use]
    pub fn min(mut self, min: i64) -> Self {
        self.min = Some(min);
        self
    }

    /// The add must not make the count more than this.
    #[must_use]
    pub fn max(mut self, max: i64) -> Self {
        self.max = Some(max);
        self
    }

    /// Sets where the add comes from.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    /// Sets what the add counts.
    #[must_use]
    pub fn event_item_key(mut self, event_item_key: impl Into<String>) -> Self {
        self.event_item_key = event_item_key.into();
        self
    }

    pub(super) fn into_wire(self) -> wire::AddCount {
        let NewAdd { counter, delta, token, min, max, source, event_item_key } = self;
        wire::AddCount { counter, delta, token: Some(sent_token(token)), min, max, source, event_item_key }
    }

    pub(super) fn into_request(self, namespace: &str) -> wire::AddCountRequest {
        let wire::AddCount { counter, delta, token, min, max, source, event_item_key } = self.into_wire();
        let namespace = namespace.to_owned();
        wire::AddCountRequest { namespace, counter, delta, token, min, max, source, event_item_key }
    }
}

/// A clear, which sets a counter to zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewClear {
    /// 1 to 128 bytes, no control characters.
    pub counter: String,
    /// `None`: the client draws one. The clear removes what was added up to the token's time.
    pub token: Option<IdempotencyToken>,
}

impl NewClear {
    /// A clear that happens now.
    pub fn new(counter: impl Into<String>) -> Self {
        NewClear { counter: counter.into(), token: None }
    }

    /// Sets the token, so that the caller can repeat the clear as the same event. A repetition removes nothing that was
    /// added meanwhile.
    #[must_use]
    pub fn token(mut self, token: IdempotencyToken) -> Self {
        self.token = Some(token);
        self
    }

    pub(super) fn into_wire(self) -> wire::ClearCount {
        wire::ClearCount { counter: self.counter, token: Some(sent_token(self.token)) }
    }

    pub(super) fn into_request(self, namespace: &str) -> wire::ClearCountRequest {
        let wire::ClearCount { counter, token } = self.into_wire();
        wire::ClearCountRequest { namespace: namespace.to_owned(), counter, token }
    }
}

/// This machine's clock, in Unix ms.
pub(super) fn now_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
}

/// The token to send. Without one the server would draw a token for each attempt, and count each attempt.
fn sent_token(token: Option<IdempotencyToken>) -> wire::IdempotencyToken {
    token.unwrap_or_else(IdempotencyToken::now).into_wire()
}

/// The result of an add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Added {
    /// The event's time as it was counted; 0 for a best-effort counter.
    pub event_time_ms: u64,
    /// The event had been counted before, by another call or by an attempt of this one whose answer was lost.
    pub duplicate: bool,
}

/// The result of an add, and the count right after it as [`CounterClient::get`](crate::CounterClient::get) reads it. For
/// an eventual counter that is the last rollup's count, without this add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AddedAndCounted {
    /// The result of the add.
    #[serde(flatten)]
    pub added: Added,
    /// The count.
    pub count: i64,
    /// The count includes every event before this time; 0: never rolled up, or best effort.
    pub exact_to_ms: u64,
}

/// The result of a clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cleared {
    /// What was added up to this time is removed; 0 for a best-effort counter.
    pub event_time_ms: u64,
    /// The same token had cleared the counter before; this call changed nothing.
    pub duplicate: bool,
}

impl Added {
    pub(super) fn from_wire(added: wire::AddCountResponse) -> Self {
        Added { event_time_ms: from_wire(added.event_time_ms), duplicate: added.duplicate }
    }
}

impl AddedAndCounted {
    pub(super) fn from_wire(added: wire::AddAndGetCountResponse) -> Self {
        AddedAndCounted {
            added: Added { event_time_ms: from_wire(added.event_time_ms), duplicate: added.duplicate },
            count: added.count,
            exact_to_ms: from_wire(added.exact_to_ms),
        }
    }
}

impl Cleared {
    pub(super) fn from_wire(cleared: wire::ClearCountResponse) -> Self {
        Cleared { event_time_ms: from_wire(cleared.event_time_ms), duplicate: cleared.duplicate }
    }
}
