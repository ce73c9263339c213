//! Events: what each transition leaves in the outbox for history (Q15, Q19).

use crate::names::{MessageId, Metadata};
use crate::shard::Shard;
use crate::state::{Cause, State};
use bytes::Bytes;
use std::sync::Arc;

/// One transition of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The message.
    pub id: MessageId,
    /// Its version after the transition.
    pub version: u32,
    /// The previous state; `None`: the message is new.
    pub from: Option<State>,
    /// The new state; `None`: the message was collected.
    pub to: Option<State>,
    /// The cause.
    pub by: Cause,
    /// When: Unix ms, by the store's clock.
    pub at_ms: u64,
    /// When the previous state was entered: Unix ms; 0 for a new message.
    pub from_since_ms: u64,
    /// When the new state was entered: `at_ms`, or earlier if the state did not change. For a collected message: when its
    /// last state was entered.
    pub since_ms: u64,
    /// Its sequence number in the shard: distinguishes two messages that had the same id one after the other.
    pub sequence: u64,
    /// When the message was accepted: Unix ms.
    pub enqueued_at_ms: u64,
    /// Its current priority.
    pub priority: i64,
    /// Its metadata, with the exclusivity value.
    pub metadata: Metadata,
    /// Attempts so far.
    pub attempts: u32,
    /// The fencing token of the current or last lease; 0 before the first.
    pub fencing_token: u64,
    /// The worker of the current or last lease; empty before the first.
    pub worker: String,
    /// Invisible: visible at; running: lease expires at; else 0.
    pub due_ms: u64,
    /// The reason given with this transition, or "lease expired"; else empty.
    pub reason: String,
    /// The last reason that any transition of the message gave.
    pub last_reason: String,
    /// It is running, and becomes pending again when it completes (Q12).
    pub coalesced: bool,
    /// The start of the payload: only in the first event and in those that lead to errored, and only if configured.
    pub payload: Option<Bytes>,
    /// The result of a completed message (Q23), in the event that completes it and in the one that collects it; else empty.
    pub result: Bytes,
}

/// An event with its position in the outbox of its shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The shard.
    pub shard: Shard,
    /// Its number among all events of the shard. The numbers have no gaps, with one exception: a queue that was deleted,
    /// read to the end and created again continues at a higher number.
    pub offset: u64,
    /// The event.
    pub event: Event,
}

/// Transitions of a shard that no sink gets: its outbox was full, or they could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The shard.
    pub shard: Shard,
    /// None of them happened later: Unix ms, by the store's clock. Each message of the shard whose last recorded
    /// transition is not later may have changed since, or be gone.
    pub lost_to_ms: u64,
}

/// The destination of events (Q19, Q21).
pub trait Sink: Send + Sync + 'static {
    /// Accepts events, those of one shard in order, and returns when all of them are durable. After an error some may be
    /// durable, and all are delivered again: a repeated event changes nothing.
    fn deliver(&self, events: Arc<Vec<Recorded>>) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Accepts losses, and returns when they are durable. It is called before the events that follow the lost ones are
    /// delivered. A repeated or older loss changes nothing.
    fn lost(&self, losses: Arc<Vec<Loss>>) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Every event of every shard up to this time, by the store's clock, has been delivered.
    fn delivered_to(&self, up_to_ms: u64) -> impl Future<Output = Result<(), SinkError>> + Send;
}

impl<S: Sink> Sink for Arc<S> {
    fn deliver(&self, events: Arc<Vec<Recorded>>) -> impl Future<Output = Result<(), SinkError>> + Send {
        S::deliver(self, events)
    }

    fn lost(&self, losses: Arc<Vec<Loss>>) -> impl Future<Output = Result<(), SinkError>> + Send {
        S::lost(self, losses)
    }

    fn delivered_to(&self, up_to_ms: u64) -> impl Future<Output = Result<(), SinkError>> + Send {
        S::delivered_to(self, up_to_ms)
    }
}

/// The sink cannot accept events at the moment; the relay tries again.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct SinkError(pub String);
