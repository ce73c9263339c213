//! The one error type of the domain: why a call, or one item of a batch, was refused. The server maps it to gRPC in one
//! place (`api/status.rs`).

use crate::state::State;
use std::time::Duration;

/// Whether a write without a reply took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It certainly did not take effect.
    No,
    /// It may have taken effect. Repeat the call: every call is idempotent.
    Unknown,
}

/// What a store has no room left in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Its memory.
    Memory,
    /// The disk of its data.
    Disk,
}

impl Resource {
    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Resource::Memory => "memory",
            Resource::Disk => "disk",
        }
    }
}

impl std::fmt::Display for Resource {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(match self {
            Resource::Memory => "memory",
            Resource::Disk => "disk space (redis.disk_free_min_bytes, disk_free_min_percent)",
        })
    }
}

/// Why a shard refuses a call that was made by an earlier layout of its queue.
const EARLIER_LAYOUT: &str = "the queue has another number of shards than before";
/// Why a closed shard refuses a message that it does not have.
const MOVED: &str = "the number of shards of the queue is being changed; call again";

/// All reasons of refusals, as [`Refusal::reason`] returns them.
pub const REASONS: [&str; 22] = [
    "INVALID_ARGUMENT",
    "QUEUE_NOT_FOUND",
    "MESSAGE_NOT_FOUND",
    "ID_CONFLICT",
    "QUEUE_EXISTS",
    "LEASE_LOST",
    "WRONG_STATE",
    "ENQUEUE_BLOCKED",
    "DEQUEUE_BLOCKED",
    "QUEUE_NOT_EMPTY",
    "QUEUE_FULL",
    "OUTBOX_FULL",
    "STORE_FULL",
    "TOO_MANY_INDEXES",
    "TOO_MANY_WAITERS",
    "TENANT_QUOTA",
    "OVERLOADED",
    "INDEX_BUILDING",
    "STORE_UNAVAILABLE",
    "DATA_LOSS",
    "CLOCK_SKEW",
    "INTERNAL",
];

/// A refused call or item. It changed nothing, except possibly [`Refusal::Unavailable`] with [`Applied::Unknown`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A field is malformed.
    #[error("{field}: {why}")]
    Invalid {
        /// The field, as the wire names it.
        field: &'static str,
        /// What is wrong, and what is valid.
        why: String,
    },
    /// No queue of that name.
    #[error("there is no queue '{queue}'")]
    QueueNotFound {
        /// The requested name.
        queue: String,
    },
    /// No message of that id: never enqueued, or collected after its retention.
    #[error("there is no message '{id}' in this queue (never enqueued, or removed after its retention)")]
    MessageNotFound {
        /// The requested id.
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
    /// The lease has ended: it expired, was released, completed or canceled, or a newer lease followed (Q11).
    #[error("the lease is lost: message '{id}' is {state}, and this fencing token no longer holds it")]
    LeaseLost {
        /// The message.
        id: String,
        /// Its current state.
        state: State,
    },
    /// The call does not apply to the state of the message.
    #[error("this call does not apply to message '{id}', which is {state}")]
    WrongState {
        /// The message.
        id: String,
        /// Its current state.
        state: State,
    },
    /// Enqueue is blocked by the queue's configuration.
    #[error("queue '{queue}' accepts no messages: enqueue is blocked")]
    EnqueueBlocked {
        /// The queue.
        queue: String,
    },
    /// The queue is paused: dequeue is blocked by its configuration.
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
    #[error("queue '{queue}' is full: it has reached its max_depth of {max_depth} live messages")]
    QueueFull {
        /// The queue.
        queue: String,
        /// Its max_depth.
        max_depth: u64,
    },
    /// The outbox is full, because history does not keep up (Q19).
    #[error(
        "queue '{queue}' accepts no new messages, because {events_max} events wait in its outbox; is history down?"
    )]
    OutboxFull {
        /// The queue.
        queue: String,
        /// The bound.
        events_max: u64,
    },
    /// The store has no room left for more data.
    #[error("the store is out of {of}; nothing was written")]
    StoreFull {
        /// Of what it has none left.
        of: Resource,
    },
    /// The queue has the maximum number of filter indexes: of all, or of undeclared ones with so many messages; or the queues together
    /// have too many entries of undeclared ones (S1).
    #[error(
        "queue '{queue}' may have no further filter index: it has {max}, or it or all queues together have too many entries in indexes \
         that are not declared; declare this one, or filter by the keys of another", max = crate::limits::INDEXES_MAX
    )]
    TooManyIndexes {
        /// The queue.
        queue: String,
    },
    /// Too many callers wait for messages of the queue (S1).
    #[error("queue '{queue}' already has the maximum of {max} {what}; call again without a wait, or later")]
    TooManyWaiters {
        /// The queue.
        queue: String,
        /// What there are too many of: waiting calls, the distinct filters of them, or subscriptions.
        what: &'static str,
        /// The bound.
        max: u32,
    },
    /// A quota of the tenant does not allow it (S5).
    #[error("tenant '{tenant}' may not pass its quota {quota} of {max}")]
    TenantQuota {
        /// The tenant.
        tenant: String,
        /// The key of the quota, as the configuration names it.
        quota: &'static str,
        /// Its value.
        max: u64,
        /// When the same may be let in; `None`: not by waiting alone.
        retry_after: Option<Duration>,
    },
    /// Too much waits for the store already; nothing was changed (O8).
    #[error("too much waits for the store, so nothing was changed; call again in {} ms", retry_after.as_millis())]
    Overloaded {
        /// After which time there should be room for the call.
        retry_after: Duration,
    },
    /// The index of a filter is being built; call again.
    #[error("the index over [{keys}] is being built; call again shortly")]
    IndexBuilding {
        /// Key names, comma separated.
        keys: String,
    },
    /// The store did not answer.
    #[error("the store is unavailable: {why}")]
    Unavailable {
        /// Whether the write took effect.
        applied: Applied,
        /// What went wrong.
        why: String,
    },
    /// The store is not what it was (X7): its data was deleted, replaced, or is older than it was.
    #[error("the store is not what it was: {why}")]
    DataLoss {
        /// What was noticed.
        why: String,
    },
    /// The clocks of the store and of the server differ by more than the bound; nothing was written (X6).
    #[error(
        "the store's clock and this server's differ by {offset_ms} ms, more than clock_skew_max_ms ({skew_max_ms}); nothing was changed"
    )]
    ClockSkew {
        /// By how much the store's clock is ahead of the server's, at least; negative: behind.
        offset_ms: i64,
        /// The bound.
        skew_max_ms: u32,
    },
    /// A defect of Tallystone.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Refusal {
    /// A [`Refusal::Invalid`].
    pub fn invalid(field: &'static str, why: impl Into<String>) -> Self {
        Refusal::Invalid { field, why: why.into() }
    }

    /// The refusal of a try of a Dequeue that reaches the store after a later one, see [`Ticket`](crate::store::Ticket).
    pub fn overtaken() -> Self {
        Refusal::Unavailable { applied: Applied::No, why: "a later try has taken this one's ticket".to_owned() }
    }

    /// The refusal of a call that names a shard by an earlier [`Layout`](crate::Layout) of its queue.
    pub fn earlier_layout() -> Self {
        Refusal::Unavailable { applied: Applied::No, why: EARLIER_LAYOUT.to_owned() }
    }

    /// The refusal of a message that a closed shard does not have, so that it is for a later shard of its queue (Q17).
    pub fn moved() -> Self {
        Refusal::Unavailable { applied: Applied::No, why: MOVED.to_owned() }
    }

    /// Whether it is that one.
    pub fn is_moved(&self) -> bool {
        matches!(self, Refusal::Unavailable { applied: Applied::No, why } if why == MOVED)
    }

    /// Whether the call was made by an earlier layout of the queue, certainly without effect: the store knows the current one then.
    pub fn is_by_earlier_layout(&self) -> bool {
        self.is_moved() || matches!(self, Refusal::Unavailable { applied: Applied::No, why } if why == EARLIER_LAYOUT)
    }

    /// The same refusal of a call of several tries or steps, of which an earlier one may have taken effect.
    #[must_use]
    pub fn after_an_earlier_try(self) -> Self {
        match self {
            Refusal::Unavailable { why, .. } => Refusal::Unavailable { applied: Applied::Unknown, why },
            skew @ Refusal::ClockSkew { .. } => {
                Refusal::Unavailable { applied: Applied::Unknown, why: skew.to_string() }
            }
            other => other,
        }
    }

    /// Whether the store cannot be used now, whatever the call: the same call may succeed later.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Refusal::Unavailable { .. } | Refusal::ClockSkew { .. })
    }

    /// Whether the call may have taken effect though it was refused.
    pub fn may_have_acted(&self) -> bool {
        matches!(self, Refusal::Unavailable { applied: Applied::Unknown, .. })
    }

    /// The reason in the wire's ErrorInfo: upper case and stable, so that programs can compare it.
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
            Refusal::StoreFull { .. } => "STORE_FULL",
            Refusal::TooManyIndexes { .. } => "TOO_MANY_INDEXES",
            Refusal::TooManyWaiters { .. } => "TOO_MANY_WAITERS",
            Refusal::TenantQuota { .. } => "TENANT_QUOTA",
            Refusal::Overloaded { .. } => "OVERLOADED",
            Refusal::IndexBuilding { .. } => "INDEX_BUILDING",
            Refusal::Unavailable { .. } => "STORE_UNAVAILABLE",
            Refusal::DataLoss { .. } => "DATA_LOSS",
            Refusal::ClockSkew { .. } => "CLOCK_SKEW",
            Refusal::Internal(_) => "INTERNAL",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o1_every_reason_is_in_the_list() {
        let (_, arms) = include_str!("refusal.rs").split_once("pub fn reason(&self)").unwrap();
        let (arms, _) = arms.split_once("\n    }\n").unwrap();
        let named: Vec<&str> = arms.lines().filter_map(|line| line.split('"').nth(1)).collect();
        assert_eq!(named, REASONS);
    }
}
