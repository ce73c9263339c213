//! What one transition leaves in the outbox: all that history will need (Q15, Q19).

use crate::names::{MessageId, Metadata};
use crate::state::{Cause, State};

/// One transition of one message.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
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
    /// Place among all messages of the shard: tells apart two messages that had the same id one after the other.
    pub sequence: u64,
    /// Present priority.
    pub priority: i64,
    /// Metadata, the exclusivity value among it.
    pub metadata: Metadata,
    /// Attempts spent.
    pub attempts: u32,
    /// The present or last lease's fencing token; 0 before the first.
    pub fence: u64,
    /// The present or last lease's holder; empty before the first.
    pub worker: String,
    /// Invisible: visible at; running: lease expires at; else 0.
    pub due_ms: u64,
    /// The reason given, or "lease expired"; else empty.
    pub reason: String,
}
