//! The bound of the outboxes.

use serde::{Deserialize, Serialize};
use tallystone_model::QueueName;

/// What happens when an outbox is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutboxFull {
    /// Enqueue is refused. Messages in the queue continue, and their events are kept up to twice the bound.
    #[default]
    RefuseEnqueue,
    /// Enqueue continues, and the oldest events are dropped.
    GiveUpHistory,
}

/// The bound of each shard's outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxBound {
    /// The number of events that no sink has acknowledged.
    pub events_max: u32,
    /// What happens at that number.
    pub full: OutboxFull,
    /// How many bytes of its payload the first event of a message carries; 0: none.
    pub payload_bytes_kept: u16,
    /// Internal queues have events, too ([`QueueName::is_internal`]). Otherwise their scripts write none.
    pub internal_queues: bool,
    /// How many bytes of its payload the event carries with which a message becomes errored, if `payload_bytes_kept` is
    /// less; 0: none (Q22).
    pub errored_payload_bytes_kept: u16,
}

impl Default for OutboxBound {
    fn default() -> Self {
        OutboxBound {
            events_max: 1_000_000,
            full: OutboxFull::RefuseEnqueue,
            payload_bytes_kept: 0,
            internal_queues: false,
            errored_payload_bytes_kept: 0,
        }
    }
}

impl OutboxBound {
    /// The bytes that the event of an errored message carries: none if its first event had as many.
    pub(super) fn errored_payload_bytes(&self) -> u16 {
        if self.errored_payload_bytes_kept > self.payload_bytes_kept { self.errored_payload_bytes_kept } else { 0 }
    }

    /// The number of events at which Enqueue is refused (0: never), and the number above which the oldest are dropped (0:
    /// the queue has no events).
    pub(super) fn limits(&self, queue: &QueueName) -> (u32, u32) {
        match self.full {
            _ if queue.is_internal() && !self.internal_queues => (0, 0),
            OutboxFull::RefuseEnqueue => (self.events_max, self.events_max.saturating_mul(2)),
            OutboxFull::GiveUpHistory => (0, self.events_max),
        }
    }
}
