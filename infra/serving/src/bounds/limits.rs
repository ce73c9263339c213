//! The section `[limits]` of the configuration.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use tallystone_model::ConfigError;
use tallystone_model::limits::UNDECLARED_INDEX_ENTRIES_MAX;

/// `[limits]`: what the callers of each port may take (S1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Open connections of one port. All ports of the process together also stay below four fifths of the files that it
    /// may open.
    pub connections_max: u64,
    /// Open connections of one port from one address, at most half of those that the process can hold.
    pub peer_connections_max: u64,
    /// The time from the accept of a connection to its first bytes, in ms.
    pub first_bytes_ms: u64,
    /// The time from the head of a request to its end, in ms; in a stream of requests, to the end of the first message, and then from the
    /// begin of a message to its end. What the answer takes does not count.
    pub request_ms: u64,
    /// The requests of one port that have not arrived in full and wait for bytes; of one address half as many.
    pub unfinished_requests_max: u64,
    /// The bytes of requests that have not arrived in full, of one connection; and what a stream of requests keeps of its largest
    /// message, beyond 2 KiB.
    pub connection_unfinished_bytes_max: u64,
    /// The same, of one port; of one address half as many.
    pub unfinished_bytes_max: u64,
    /// The calls that one connection may hold open.
    pub connection_streams_max: u32,
    /// The open streams of requests of one port, such as Work; of one address half as many.
    pub streams_max: u64,
    /// The bytes of answers of one connection that it has not taken.
    pub connection_unread_bytes_max: u64,
    /// The same, of all ports of the process, and 4 KiB for each frame that has not been taken; and 1 KiB for each call that was reset while
    /// its connection had no room for answers.
    pub unread_bytes_max: u64,
    /// The bytes of requests over HTTP/2 that have arrived and that no call has read, of all ports of the process.
    pub unread_request_bytes_max: u64,
    /// The time in which a caller takes what the server has for it, and in which a connection takes some bytes, in ms.
    pub answer_ms: u64,
    /// The watches of the health of one port, and as many calls of its reflection.
    pub health_streams_max: u32,
    /// The subscriptions of Work streams of one server.
    pub subscriptions_max: u32,
    /// The Dequeues of one server that wait for messages.
    pub waiting_dequeues_max: u32,
    /// The Dequeues and subscriptions that wait for messages of one queue.
    pub queue_waiters_max: u32,
    /// The distinct filters for which they wait.
    pub queue_filters_max: u32,
    /// The entries that undeclared filter indexes of all queues may have together.
    pub undeclared_index_entries_max: u64,
    /// The calls of one stream of Enqueues that have no answer: beyond, no further ones are read.
    pub enqueue_stream_calls_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections_max: 10_000,
            peer_connections_max: 1_000,
            first_bytes_ms: 10_000,
            request_ms: 15_000,
            unfinished_requests_max: 10_000,
            connection_unfinished_bytes_max: 32 * 1024 * 1024,
            unfinished_bytes_max: 128 * 1024 * 1024,
            connection_streams_max: 10_000,
            streams_max: 10_000,
            connection_unread_bytes_max: 32 * 1024 * 1024,
            unread_bytes_max: 64 * 1024 * 1024,
            unread_request_bytes_max: 4 * 1024 * 1024,
            answer_ms: 60_000,
            health_streams_max: 1_000,
            subscriptions_max: 100_000,
            waiting_dequeues_max: 20_000,
            queue_waiters_max: 10_000,
            queue_filters_max: 256,
            undeclared_index_entries_max: UNDECLARED_INDEX_ENTRIES_MAX,
            enqueue_stream_calls_max: 1_000,
        }
    }
}

/// A longer message is refused by its service as soon as its length is known.
pub(super) const MESSAGE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// A batch of the largest size must fit.
const BYTES_MIN: u64 = MESSAGE_BYTES_MAX as u64;
const BYTES_MAX: u64 = 1 << 40;
/// Beyond the bound, connections with few bytes go on in small steps. With a smaller bound than this, every connection would.
const UNREAD_REQUEST_BYTES_MIN: u64 = 1024 * 1024;

impl Limits {
    /// Checks every field; the error names the first bad one.
    pub fn check(&self) -> Result<(), ConfigError> {
        let within = |key: &str, value, range| ConfigError::unless_within(&format!("limits.{key}"), value, range);
        within("connections_max", self.connections_max, 1..=1_000_000)?;
        within("peer_connections_max", self.peer_connections_max, 1..=1_000_000)?;
        within("first_bytes_ms", self.first_bytes_ms, 100..=600_000)?;
        within("request_ms", self.request_ms, 100..=600_000)?;
        within("unfinished_requests_max", self.unfinished_requests_max, 1..=1_000_000)?;
        let bytes = BYTES_MIN..=BYTES_MAX;
        within("connection_unfinished_bytes_max", self.connection_unfinished_bytes_max, bytes.clone())?;
        within("unfinished_bytes_max", self.unfinished_bytes_max, bytes.clone())?;
        within("connection_streams_max", self.connection_streams_max.into(), 1..=1_000_000)?;
        within("streams_max", self.streams_max, 1..=10_000_000)?;
        within("connection_unread_bytes_max", self.connection_unread_bytes_max, bytes.clone())?;
        within("unread_bytes_max", self.unread_bytes_max, bytes)?;
        within("unread_request_bytes_max", self.unread_request_bytes_max, UNREAD_REQUEST_BYTES_MIN..=BYTES_MAX)?;
        within("answer_ms", self.answer_ms, 100..=3_600_000)?;
        within("health_streams_max", self.health_streams_max.into(), 1..=1_000_000)?;
        within("subscriptions_max", self.subscriptions_max.into(), 1..=10_000_000)?;
        within("waiting_dequeues_max", self.waiting_dequeues_max.into(), 1..=10_000_000)?;
        within("queue_waiters_max", self.queue_waiters_max.into(), 1..=1_000_000)?;
        within("queue_filters_max", self.queue_filters_max.into(), 1..=100_000)?;
        within("undeclared_index_entries_max", self.undeclared_index_entries_max, 1..=BYTES_MAX)?;
        within("enqueue_stream_calls_max", self.enqueue_stream_calls_max.into(), 1..=100_000)
    }

    pub(crate) fn first_bytes(&self) -> Duration {
        Duration::from_millis(self.first_bytes_ms)
    }

    pub(crate) fn request(&self) -> Duration {
        Duration::from_millis(self.request_ms)
    }

    pub(crate) fn answer(&self) -> Duration {
        Duration::from_millis(self.answer_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bad_field_is_named() {
        let good = Limits::default();
        assert_eq!(good.check(), Ok(()));
        for (field, limits) in [
            ("limits.connections_max", Limits { connections_max: 0, ..good }),
            ("limits.peer_connections_max", Limits { peer_connections_max: 0, ..good }),
            ("limits.first_bytes_ms", Limits { first_bytes_ms: 0, ..good }),
            ("limits.request_ms", Limits { request_ms: 0, ..good }),
            ("limits.unfinished_requests_max", Limits { unfinished_requests_max: 0, ..good }),
            ("limits.connection_unfinished_bytes_max", Limits { connection_unfinished_bytes_max: 0, ..good }),
            ("limits.unfinished_bytes_max", Limits { unfinished_bytes_max: 0, ..good }),
            ("limits.connection_streams_max", Limits { connection_streams_max: 0, ..good }),
            ("limits.streams_max", Limits { streams_max: 0, ..good }),
            ("limits.connection_unread_bytes_max", Limits { connection_unread_bytes_max: 0, ..good }),
            ("limits.unread_bytes_max", Limits { unread_bytes_max: 0, ..good }),
            ("limits.unread_request_bytes_max", Limits { unread_request_bytes_max: 0, ..good }),
            ("limits.answer_ms", Limits { answer_ms: 0, ..good }),
            ("limits.health_streams_max", Limits { health_streams_max: 0, ..good }),
            ("limits.subscriptions_max", Limits { subscriptions_max: 0, ..good }),
            ("limits.waiting_dequeues_max", Limits { waiting_dequeues_max: 0, ..good }),
            ("limits.queue_waiters_max", Limits { queue_waiters_max: 0, ..good }),
            ("limits.queue_filters_max", Limits { queue_filters_max: 0, ..good }),
            ("limits.undeclared_index_entries_max", Limits { undeclared_index_entries_max: 0, ..good }),
            ("limits.enqueue_stream_calls_max", Limits { enqueue_stream_calls_max: 0, ..good }),
        ] {
            assert_eq!(limits.check().unwrap_err().field, field);
        }
    }
}
