//! What time it is by the store's clock, as far as this process knows.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tallystone_link::Clock;

/// What was heard counts for one to two of these: clocks drift, and are set.
const ESTIMATE_PERIOD: Duration = Duration::from_secs(10);

/// An answer says what time it was when it was made; that is never ahead, and of many answers the fastest is nearly right.
pub(super) struct StoreClock {
    clock: Clock,
    began: Instant,
    heard: Mutex<ClockEstimates>,
}

/// The store's time when this process began, by the fastest answer of this period and of the last.
#[derive(Default)]
struct ClockEstimates {
    period: u64,
    best_ms: Option<u64>,
    before_ms: Option<u64>,
}

impl StoreClock {
    pub(super) fn new(clock: Clock) -> StoreClock {
        StoreClock { clock, began: Instant::now(), heard: Mutex::default() }
    }

    /// An answer said so.
    pub(super) fn heard(&self, now_ms: u64) {
        let since = self.began.elapsed();
        let period = since.as_secs() / ESTIMATE_PERIOD.as_secs();
        let begin_ms = now_ms.saturating_sub(since.as_millis() as u64);
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        if heard.period != period {
            let before_ms = if period == heard.period + 1 { heard.best_ms } else { None };
            *heard = ClockEstimates { period, best_ms: None, before_ms };
        }
        heard.best_ms = heard.best_ms.max(Some(begin_ms));
    }

    /// Unix ms.
    pub(super) fn now_ms(&self) -> u64 {
        if let test @ Clock::Test(_) = &self.clock {
            return test.argument();
        }
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        match heard.best_ms.max(heard.before_ms) {
            Some(begin_ms) => begin_ms + self.began.elapsed().as_millis() as u64,
            None => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
        }
    }
}
