//! What one transition leaves in the outbox: all that history will need (Q15, Q19).

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
    /// The state left; `None`: it was not there.
    pub from: Option<State>,
    /// The state entered; `None`: it is gone.
    pub to: Option<State>,
    /// What did it.
    pub by: Cause,
    /// When, by the store's clock.
    pub at_ms: u64,
    /// When the state left was entered; 0 where there was none.
    pub from_since_ms: u64,
    /// When the present state was entered: `at_ms`, but earlier where the state has not changed. Of a message that is
    /// gone, when its last state was.
    pub since_ms: u64,
    /// Place among all messages of the shard: tells apart two messages that had the same id one after the other.
    pub sequence: u64,
    /// When the message was accepted.
    pub enqueued_at_ms: u64,
    /// Present priority.
    pub priority: i64,
    /// Metadata, the exclusivity value among it.
    pub metadata: Metadata,
    /// Attempts spent.
    pub attempts: u32,
    /// The present or last lease's fencing token; 0 before the first.
    pub fencing_token: u64,
    /// The present or last lease's holder; empty before the first.
    pub worker: String,
    /// Invisible: visible at; running: lease expires at; else 0.
    pub due_ms: u64,
    /// The reason given with this transition, or "lease expired"; else empty.
    pub reason: String,
    /// The last reason that any transition of the message gave.
    pub last_reason: String,
    /// Running, and to be pending again when it completes (Q12).
    pub coalesced: bool,
    /// Of the first event, on request: the begin of the payload.
    pub payload: Option<Bytes>,
}

/// An event where it stands in its shard's outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The shard.
    pub shard: Shard,
    /// Its place among all events of the shard. The numbers have no gaps, but that a queue that was deleted, its outbox
    /// read to the end, and made anew begins at a higher one.
    pub offset: u64,
    /// What happened.
    pub event: Event,
}

/// Where events go (Q19, Q21).
pub trait Sink: Send + Sync + 'static {
    /// Takes events, those of one shard in order, and answers when all of them are durable there. After an error
    /// some may be; all are given again. To take one twice changes nothing.
    fn deliver(&self, events: Arc<Vec<Recorded>>) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Of every shard, all that happened up to here, by the store's clock, has been delivered.
    fn delivered_to(&self, up_to_ms: u64) -> impl Future<Output = Result<(), SinkError>> + Send;
}

impl<S: Sink> Sink for Arc<S> {
    fn deliver(&self, events: Arc<Vec<Recorded>>) -> impl Future<Output = Result<(), SinkError>> + Send {
        S::deliver(self, events)
    }

    fn delivered_to(&self, up_to_ms: u64) -> impl Future<Output = Result<(), SinkError>> + Send {
        S::delivered_to(self, up_to_ms)
    }
}

/// A sink that takes nothing now; the relay tries again.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct SinkError(pub String);
