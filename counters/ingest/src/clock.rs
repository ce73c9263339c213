//! This machine's clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Unix ms. It decides which records are not sent, with which time they are written again, and, with room for a wrong clock, which
/// are too old to count.
pub(crate) fn now_ms() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX)
}
