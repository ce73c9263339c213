//! Adds and clears, the token that makes each of them one event, and what became of them. Times are Unix milliseconds.

use crate::client::{from_wire, wire_ms};
use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};
use tallystone_proto::counter::v1 as wire;

/// What makes an event one (N3): with its counter, the two together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct IdempotencyToken {
    /// 1 to 64 bytes, no control characters.
    pub token: String,
    /// When the event happened. A retry says the same time.
    pub generation_time_ms: u64,
}

impl IdempotencyToken {
    /// The token of an event that has a name and a time of its own.
    pub fn new(token: impl Into<String>, generation_time_ms: u64) -> Self {
        IdempotencyToken { token: token.into(), generation_time_ms }
    }

    /// A token that nobody else has (a UUIDv7), of an event that happens now by this machine's clock.
    pub fn now() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        IdempotencyToken::drawn_for(u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX))
    }

    /// A token that nobody else has, of an event that happened at this time.
    pub fn drawn_for(generation_time_ms: u64) -> Self {
        IdempotencyToken::new(uuid::Uuid::now_v7().simple().to_string(), generation_time_ms)
    }

    fn into_wire(self) -> wire::IdempotencyToken {
        wire::IdempotencyToken { token: self.token, generation_time_ms: wire_ms(self.generation_time_ms) }
    }
}

/// Something to add to a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAdd {
    /// 1 to 128 bytes, no control characters.
    pub counter: String,
    /// May be below zero.
    pub delta: i64,
    /// Where there is none, the client draws one
    /// ([why](crate::CounterClient#every-add-has-a-token)).
    pub token: Option<IdempotencyToken>,
}

impl NewAdd {
    /// An event that happens now.
    pub fn new(counter: impl Into<String>, delta: i64) -> Self {
        NewAdd { counter: counter.into(), delta, token: None }
    }

    /// With a token of its own: sent again, it is the same event.
    #[must_use]
    pub fn token(mut self, token: IdempotencyToken) -> Self {
        self.token = Some(token);
        self
    }

    pub(super) fn into_wire(self) -> wire::AddCount {
        wire::AddCount { counter: self.counter, delta: self.delta, token: Some(on_the_wire(self.token)) }
    }

    pub(super) fn into_request(self, namespace: &str) -> wire::AddCountRequest {
        let wire::AddCount { counter, delta, token } = self.into_wire();
        wire::AddCountRequest { namespace: namespace.to_owned(), counter, delta, token }
    }
}

/// A counter to set to zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewClear {
    /// 1 to 128 bytes, no control characters.
    pub counter: String,
    /// Where there is none, the client draws one.
    pub token: Option<IdempotencyToken>,
}

impl NewClear {
    /// A clear that happens now.
    pub fn new(counter: impl Into<String>) -> Self {
        NewClear { counter: counter.into(), token: None }
    }

    /// With a token of its own: sent again, it is the same event, and clears nothing that was added meanwhile.
    #[must_use]
    pub fn token(mut self, token: IdempotencyToken) -> Self {
        self.token = Some(token);
        self
    }

    pub(super) fn into_wire(self) -> wire::ClearCount {
        wire::ClearCount { counter: self.counter, token: Some(on_the_wire(self.token)) }
    }

    pub(super) fn into_request(self, namespace: &str) -> wire::ClearCountRequest {
        let wire::ClearCount { counter, token } = self.into_wire();
        wire::ClearCountRequest { namespace: namespace.to_owned(), counter, token }
    }
}

/// Without a token the server would draw one for each attempt, and count each.
fn on_the_wire(token: Option<IdempotencyToken>) -> wire::IdempotencyToken {
    token.unwrap_or_else(IdempotencyToken::now).into_wire()
}

/// What was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Added {
    /// When the event happened, as it was counted; 0 of a best-effort counter.
    pub event_time_ms: u64,
    /// It had been counted before, by another call or by an attempt of this one whose answer was lost.
    pub duplicate: bool,
}

/// What was added, and the count right after it as [`CounterClient::get`](crate::CounterClient::get) would tell it: of
/// an eventual counter, without what was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AddedAndCounted {
    /// What was added.
    #[serde(flatten)]
    pub added: Added,
    /// The count.
    pub count: i64,
    /// The count holds all that happened before this time; 0: never rolled up, or best effort.
    pub exact_to_ms: u64,
}

/// What was cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cleared {
    /// What was added up to this time is gone; 0 of a best-effort counter.
    pub event_time_ms: u64,
    /// It had been cleared before, by the same token.
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
