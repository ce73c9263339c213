//! Messages, and leases on them (Q3, Q11).

use crate::limits::*;
use crate::names::{MessageId, Metadata};
use crate::refusal::Refusal;
use crate::state::State;
use bytes::Bytes;

/// A message as its sender describes it. All but `coalesce` is its *content*: the same id with the same content
/// is the same message (Q10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMessage {
    /// Unique in its queue until collected.
    pub id: MessageId,
    /// Opaque, at most 32 KiB.
    pub payload: Bytes,
    /// Lower runs first.
    pub priority: i64,
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
    /// A message with nothing but an id and a priority, to build on.
    pub fn new(id: MessageId, priority: i64) -> Self {
        NewMessage {
            id,
            payload: Bytes::new(),
            priority,
            metadata: Metadata::default(),
            lease_ms: None,
            invisibility_ms: None,
            max_attempts: None,
            coalesce: false,
        }
    }

    /// Checks what the types of the fields do not say.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.payload.len() > PAYLOAD_BYTES_MAX {
            let why = format!("is {} bytes long; at most {PAYLOAD_BYTES_MAX}", self.payload.len());
            return Err(Refusal::invalid("payload", why));
        }
        Ok(())
    }
}

/// What Enqueue answers: the same for the first call and for every repetition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// The id.
    pub id: MessageId,
    /// When the message that now stands under this id was accepted.
    pub enqueued_at_ms: u64,
}

/// The right of one worker to run one message until `expires_at_ms`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The message.
    pub id: MessageId,
    /// Its payload.
    pub payload: Bytes,
    /// Its present priority.
    pub priority: i64,
    /// Its metadata.
    pub metadata: Metadata,
    /// The fencing token: rises with every lease given in the queue shard (Q11).
    pub fencing_token: u64,
    /// 1 for the first run.
    pub attempt: u32,
    /// The message's own bound, or the queue's.
    pub max_attempts: u32,
    /// When the message was accepted.
    pub enqueued_at_ms: u64,
    /// When this lease began.
    pub leased_at_ms: u64,
    /// When it ends.
    pub expires_at_ms: u64,
    /// The message's version.
    pub version: u32,
}

/// A message as it stands in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The id.
    pub id: MessageId,
    /// Its state. A lease that has run out shows as running until the sweep, or the next Dequeue, has seen it.
    pub state: State,
    /// Raised by one with every write (Q6).
    pub version: u32,
    /// Its payload.
    pub payload: Bytes,
    /// Present priority: the sender's, or what UpdateMessage or coalescing made of it.
    pub priority: i64,
    /// Its metadata.
    pub metadata: Metadata,
    /// Its own lease, if it has one.
    pub lease_ms: Option<u64>,
    /// Its own invisibility, if it has one.
    pub invisibility_ms: Option<u64>,
    /// Its own bound, or the queue's.
    pub max_attempts: u32,
    /// Spent so far; the present run counts.
    pub attempts: u32,
    /// When it was accepted.
    pub enqueued_at_ms: u64,
    /// When it came into its present state.
    pub state_since_ms: u64,
    /// Invisible: visible at; running: lease expires at; terminal: collected at; pending: 0.
    pub due_ms: u64,
    /// The last lease's; 0 before the first.
    pub fencing_token: u64,
    /// The last lease's holder; empty before the first.
    pub worker: String,
    /// The last reason given, or "lease expired".
    pub reason: String,
    /// Running, and to be pending again when it completes (Q12).
    pub coalesced: bool,
}
