//! Checking again and again for something that must come.

use std::time::{Duration, Instant};

const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(100);
/// The pause as a part of the time so far.
const PART: u32 = 10;

/// The checks of one condition: soon after each other at first, then after a tenth of the time so far. Checks a hundred times a second
/// by every test that waits would keep a core busy.
pub struct Polling {
    began: Instant,
}

impl Polling {
    /// From now on.
    pub fn begin() -> Polling {
        Polling { began: Instant::now() }
    }

    /// Waits until the next check.
    pub async fn pause(&self) {
        tokio::time::sleep((self.began.elapsed() / PART).clamp(SHORTEST, LONGEST)).await;
    }
}
