//! The store of BEST_EFFORT counters (N4): one number for each, no events, no tokens.

use crate::names::CounterName;
use crate::refusal::Refusal;

/// Counters that are numbers in a cache. A counter that does not exist counts 0. With `ttl_ms` above 0 a counter expires
/// that long after its last add.
pub trait Cache: Send + Sync {
    /// Adds; a result for each, in their order. Adds of one counter are applied as one sum, or one after the other where
    /// the sum would leave 64 bits.
    ///
    /// # Errors
    /// [`Refusal::Overflow`]: this add would leave the range, and has changed nothing. [`Refusal::Unavailable`]: whether
    /// it has counted may be unknown, and a retry may count twice. [`Refusal::Stale`]: the namespace was deleted; nothing
    /// has changed.
    fn cache_add(&self, adds: &[(CounterName, i64)]) -> impl Future<Output = Vec<Result<(), Refusal>>> + Send;

    /// The counts, in the order of the counters.
    fn cache_get(&self, counters: &[CounterName]) -> impl Future<Output = Result<Vec<i64>, Refusal>> + Send;

    /// Sets counters to 0; a result for each, in their order.
    ///
    /// # Errors
    /// [`Refusal::Stale`]: as of `cache_add`.
    fn cache_clear(&self, counters: &[CounterName]) -> impl Future<Output = Vec<Result<(), Refusal>>> + Send;
}
