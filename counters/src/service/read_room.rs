//! The bound on reads that wait for rollups (N19) or for crossings (N16). They take no room from adds: a rollup may take long
//! while the store is fast.

use crate::refusal::Refusal;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Counters for which reads may wait, in all namespaces of a server together. Where no rollup comes, each takes a field of
/// an HMGET in a second.
const COUNTERS_MAX: usize = 50_000;
/// When a read for which there is no room may retry.
const RETRY_AFTER_MS: u64 = 1_000;

/// The room for reads that wait.
pub(super) struct ReadRoom(Semaphore);

impl ReadRoom {
    pub(super) fn new() -> ReadRoom {
        ReadRoom(Semaphore::new(COUNTERS_MAX))
    }

    /// A place for a read of this number of counters, until it is dropped.
    ///
    /// # Errors
    /// [`Refusal::Overloaded`]
    pub(super) fn take(&self, counters: usize) -> Result<SemaphorePermit<'_>, Refusal> {
        let overloaded = |_| Refusal::Overloaded { retry_after_ms: RETRY_AFTER_MS };
        self.0.try_acquire_many(counters as u32).map_err(overloaded)
    }
}
