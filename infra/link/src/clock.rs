//! The clock of the scripts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which clock the scripts use.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// Redis TIME, inside the script (Q15).
    #[default]
    Redis,
    /// Unix time in ms, set by tests only.
    Test(Arc<AtomicU64>),
}

impl Clock {
    /// The clock argument of a script: Unix time in ms, or 0 for Redis TIME.
    pub fn argument(&self) -> u64 {
        match self {
            Clock::Redis => 0,
            Clock::Test(ms) => ms.load(Ordering::SeqCst),
        }
    }
}
