//! This machine's wall clock, in one place.

use std::time::{SystemTime, UNIX_EPOCH};

/// Unix ms. Before 1970 it is 1970.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
