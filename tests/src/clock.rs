//! The clock of a test.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A clock in Unix ms that only the test moves.
#[derive(Clone, Debug)]
pub struct Clock(Arc<AtomicU64>);

impl Clock {
    /// A clock that starts at a time in 2023.
    #[expect(clippy::new_without_default, reason = "a clock is shared, not a value")]
    pub fn new() -> Self {
        Clock(Arc::new(AtomicU64::new(1_700_000_000_000)))
    }

    /// The value that stores read.
    pub fn shared(&self) -> Arc<AtomicU64> {
        self.0.clone()
    }

    /// The time, Unix ms.
    pub fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Moves the clock forward.
    pub fn advance(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}
