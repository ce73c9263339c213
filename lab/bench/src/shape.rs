//! The shape of the load that the figures share: batch sizes, numbers of clients, and the time limit of a sample.

use std::time::Duration;

/// Bytes of every payload.
pub(crate) const PAYLOAD_BYTES: usize = 100;
/// Messages per call, where calls carry batches.
pub(crate) const BATCH: usize = 32;
/// Clients that call in batches, each with its own connection.
pub(crate) const CLIENTS: usize = 8;
/// Callers and workers that handle one message at a time.
pub(crate) const CALLERS: usize = 64;
/// Connections that our callers and workers share.
pub(crate) const CONNECTIONS: usize = 4;
/// How long our completed messages stay. Short, so that each measurement includes the cost of collecting them.
pub(crate) const RETENTION_MS: i64 = 1_000;

/// A bound on the time of a sample with this many messages. Only a sample that hangs exceeds it.
pub(crate) fn time_limit(messages: u64) -> Duration {
    Duration::from_secs(60) + Duration::from_micros(messages * 500)
}
