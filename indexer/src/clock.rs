//! The wall clock: the only place of this crate that reads it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, Unix ms; 0 if the clock is set before 1970.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
