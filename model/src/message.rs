//! Messages, and leases on them (Q3, Q11).

use crate::limits::*;
use crate::names::{MessageId, Metadata};
use crate::refusal::Refusal;
use crate::state::State;
use bytes::Bytes;
use std::time::Duration;

/// A message as its sender describes it. All but `coalesce` and the trace context is its *content*: the same id with the
/// same content is the same message (Q10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMessage {
    /// Unique in its queue until collected.
    pub id: MessageId,
    /// Opaque, at most 32 KiB.
    pub payload: Bytes,
    /// Lower runs first.
    pub priority: i64,
    /// The class that sets the priority instead (Q28).
    pub priority_class: Option<String>,
    /// At most 4 pairs.
    pub metadata: Metadata,
    /// Overrides the queue's lease.
    pub lease_ms: Option<u64>,
    /// Overrides the queue's invisibility.
    pub invisibility_ms: Option<u64>,
    /// Overrides the queue's max attempts.
    pub max_attempts: Option<u32>,
    /// A live message with this id stands for this one (Q12).
    pub coalesce: bool,
}

impl NewMessage {
    /// Whether this message, sent with the same id, has the same content. A repetition may belong to another trace (O2); but the
    /// exclusivity value is content, whatever its key.
    pub fn is_repeated_by(&self, other: &NewMessage, exclusivity_key: Option<&str>) -> bool {
        let content = |message: &NewMessage| NewMessage {
            metadata: message.metadata.without_trace(exclusivity_key),
            ..message.clone()
        };
        content(self) == content(other)
    }

    /// A message with an id and a priority only; other fields can be set afterwards.
    pub fn new(id: MessageId, priority: i64) -> Self {
        NewMessage {
            id,
            payload: Bytes::new(),
            priority,
            priority_class: None,
            metadata: Metadata::default(),
            lease_ms: None,
            invisibility_ms: None,
            max_attempts: None,
            coalesce: false,
        }
    }

    /// Checks the limits that the types of the fields do not express.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.payload.len() > PAYLOAD_BYTES_MAX {
            let why = format!("is {} bytes long; the maximum is {PAYLOAD_BYTES_MAX}", self.payload.len());
            return Err(Refusal::invalid("payload", why));
        }
        Ok(())
    }
}

/// The result of Enqueue: the same for the first call and for every repetition, except `queue_created`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// The id.
    pub id: MessageId,
    /// When the message that now has this id was accepted: Unix ms.
    pub enqueued_at_ms: u64,
    /// This call created the queue (Q1). The server sets it; to a store the queue exists.
    pub queue_created: bool,
}

/// The right of one worker to run one message until `expires_at_ms`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The message.
    pub id: MessageId,
    /// Its payload.
    pub payload: Bytes,
    /// Its current priority.
    pub priority: i64,
    /// Its metadata.
    pub metadata: Metadata,
    /// The fencing token: rises with every lease of the queue shard (Q11).
    pub fencing_token: u64,
    /// 1 for the first run.
    pub attempt: u32,
    /// The message's own limit, or the queue's.
    pub max_attempts: u32,
    /// When the message was accepted.
    pub enqueued_at_ms: u64,
    /// When this lease began.
    pub leased_at_ms: u64,
    /// When it ends.
    pub expires_at_ms: u64,
    /// What is left of it for its worker. Never more than is true: a store gives the whole length, and what happens on the way
    /// takes from it (docs/decisions/0286).
    pub left_ms: u64,
    /// The message's version.
    pub version: u32,
}

impl Lease {
    /// The store's clock shows this time: no more than the rest is left.
    pub fn left_at(&mut self, now_ms: u64) {
        self.left_ms = self.left_ms.min(self.expires_at_ms.saturating_sub(now_ms));
    }

    /// So much time passes on the way to its worker. Returns whether anything is left.
    pub fn spend(&mut self, time: Duration) -> bool {
        let spent_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.left_ms = self.left_ms.saturating_sub(spent_ms);
        self.left_ms > 0
    }
}

/// A message in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The id.
    pub id: MessageId,
    /// Its state. A message whose lease has expired stays running until the next sweep or Dequeue.
    pub state: State,
    /// Raised by one with every write (Q6).
    pub version: u32,
    /// Its payload.
    pub payload: Bytes,
    /// Its current priority: the sender's, or its class's, or a later one from UpdateMessage or coalescing.
    pub priority: i64,
    /// The class that set its first priority, if one did (Q28).
    pub priority_class: Option<String>,
    /// Its metadata.
    pub metadata: Metadata,
    /// Its own lease, if it has one.
    pub lease_ms: Option<u64>,
    /// Its own invisibility, if it has one.
    pub invisibility_ms: Option<u64>,
    /// Its own limit, or the queue's.
    pub max_attempts: u32,
    /// Attempts so far, the current run included.
    pub attempts: u32,
    /// When it was accepted.
    pub enqueued_at_ms: u64,
    /// When it entered its current state: Unix ms.
    pub state_since_ms: u64,
    /// Invisible: visible at; running: lease expires at; terminal: collected at; pending: 0.
    pub due_ms: u64,
    /// The fencing token of the last lease; 0 before the first.
    pub fencing_token: u64,
    /// The worker of the last lease; empty before the first.
    pub worker: String,
    /// The last reason: of Release or Cancel, or "lease expired".
    pub reason: String,
    /// It is running, and becomes pending again when it completes (Q12).
    pub coalesced: bool,
    /// Completed: the result of the work; else empty (Q23).
    pub result: Bytes,
    /// Its last attempts, the oldest first, at most [`ATTEMPTS_KEPT`]; only where one message is read, not in lists (Q22).
    /// The attempts of earlier lives are among them (a redrive), but not a run with success after which a coalesced message
    /// runs again.
    pub last_attempts: Vec<Attempt>,
}

/// One attempt of a message (Q22).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// 1 for the first. A redrive, or a run that follows from coalescing, counts from 1 again.
    pub number: u32,
    /// The fencing token of its lease.
    pub fencing_token: u64,
    /// Its worker.
    pub worker: String,
    /// When it began: Unix ms.
    pub leased_at_ms: u64,
    /// When it ended: Unix ms. 0: it runs.
    pub ended_at_ms: u64,
    /// Where it left the message; running: it runs.
    pub state: State,
    /// Why it ended: given by the worker, or "lease expired"; may be empty.
    pub reason: String,
}
