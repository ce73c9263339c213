//! A count, its counter, and how many of them one call reads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// Counters of one call.
pub(super) const CALL_MAX: usize = 1_000;

/// Namespace and name of a counter.
pub(crate) type CounterKey = (Arc<str>, String);

/// A count, and when it was read from the counters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct KnownCount {
    pub(crate) count: i64,
    pub(crate) read_at: Instant,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
