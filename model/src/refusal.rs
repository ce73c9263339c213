//! The one error of the domain: why a call, or one item of a batch, was refused. Mapped to gRPC in one
//! place (server `api/status.rs`).

use crate::state::State;

/// Whether a write of which no answer came may have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It certainly did not happen.
    No,
    /// It may have: repeat the call, every call is idempotent.
    Unknown,
}

/// A refused call or item. It changed nothing, [`Refusal::Unavailable`] with [`Applied::Unknown`] excepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Malformed: which field, and what would be right.
    #[error("{field}: {why}")]
    Invalid {
        /// The field, as the wire names it.
        field: &'static str,
        /// What is wrong and what would be right.
        why: String,
    },
    /// No queue of that name.
    #[error("there is no queue '{queue}'")]
    QueueNotFound {
        /// The name asked for.
        queue: String,
    },
    /// No message of that id: never enqueued, or collected after its retention.
    #[error("there is no message '{id}' in this queue (never enqueued, or collected after its retention)")]
    MessageNotFound {
        /// The id asked for.
        id: String,
    },
    /// The id is taken by a message with other content (Q10).
    #[error("message '{id}' exists with other content")]
    IdConflict {
        /// The id.
        id: String,
    },
    /// The queue exists with another configuration.
    #[error("queue '{queue}' exists with another configuration")]
    QueueExists {
        /// The name.
        queue: String,
    },
    /// The lease ended: expired, given back, completed, canceled, or followed by a newer one (Q11).
    #[error("the lease is lost: message '{id}' is {state} and this fencing token no longer holds it")]
    LeaseLost {
        /// The message.
        id: String,
        /// Its state now.
        state: State,
    },
    /// The message is in a state that the call does not apply to.
    #[error("message '{id}' is {state}")]
    WrongState {
        /// The message.
        id: String,
        /// Its state now.
        state: State,
    },
    /// The queue takes no new messages just now.
    #[error("queue '{queue}' has enqueue blocked")]
    EnqueueBlocked {
        /// The queue.
        queue: String,
    },
    /// The queue gives out no messages just now.
    #[error("queue '{queue}' is paused: dequeue is blocked")]
    DequeueBlocked {
        /// The queue.
        queue: String,
    },
    /// DeleteQueue of a queue with live messages.
    #[error("queue '{queue}' still has live messages; purge it, or force the deletion")]
    QueueNotEmpty {
        /// The queue.
        queue: String,
    },
    /// max_depth is reached.
    #[error("queue '{queue}' is full: {max_depth} live messages")]
    QueueFull {
        /// The queue.
        queue: String,
        /// Its bound.
        max_depth: u64,
    },
    /// Events wait in the outbox, as many as it may hold: history does not keep up (Q19).
    #[error(
        "queue '{queue}' takes no new messages: {events_max} events wait in its outbox; is the history store down?"
    )]
    OutboxFull {
        /// The queue.
        queue: String,
        /// The bound.
        events_max: u64,
    },
    /// The store has no memory left.
    #[error("the store is out of memory; nothing was written")]
    StoreFull,
    /// One filter index more than a queue may have.
    #[error("queue '{queue}' has its {max} filter indexes already; declare or reuse one of them", max = crate::limits::INDEXES_MAX)]
    TooManyIndexes {
        /// The queue.
        queue: String,
    },
    /// A filter's index is being built; call again.
    #[error("the index over [{keys}] is being built; call again shortly")]
    IndexBuilding {
        /// Key names, comma separated.
        keys: String,
    },
    /// The store did not answer.
    #[error("the store is unavailable: {why}")]
    Unavailable {
        /// Whether the write may have happened.
        applied: Applied,
        /// What went wrong.
        why: String,
    },
    /// A defect of ours.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Refusal {
    /// An [`Refusal::Invalid`].
    pub fn invalid(field: &'static str, why: impl Into<String>) -> Self {
        Refusal::Invalid { field, why: why.into() }
    }

    /// The reason of the wire's ErrorInfo: upper case, stable, for programs to compare.
    pub fn reason(&self) -> &'static str {
        match self {
            Refusal::Invalid { .. } => "INVALID_ARGUMENT",
            Refusal::QueueNotFound { .. } => "QUEUE_NOT_FOUND",
            Refusal::MessageNotFound { .. } => "MESSAGE_NOT_FOUND",
            Refusal::IdConflict { .. } => "ID_CONFLICT",
            Refusal::QueueExists { .. } => "QUEUE_EXISTS",
            Refusal::LeaseLost { .. } => "LEASE_LOST",
            Refusal::WrongState { .. } => "WRONG_STATE",
            Refusal::EnqueueBlocked { .. } => "ENQUEUE_BLOCKED",
            Refusal::DequeueBlocked { .. } => "DEQUEUE_BLOCKED",
            Refusal::QueueNotEmpty { .. } => "QUEUE_NOT_EMPTY",
            Refusal::QueueFull { .. } => "QUEUE_FULL",
            Refusal::OutboxFull { .. } => "OUTBOX_FULL",
            Refusal::StoreFull => "STORE_FULL",
            Refusal::TooManyIndexes { .. } => "TOO_MANY_INDEXES",
            Refusal::IndexBuilding { .. } => "INDEX_BUILDING",
            Refusal::Unavailable { .. } => "STORE_UNAVAILABLE",
            Refusal::Internal(_) => "INTERNAL",
        }
    }
}
