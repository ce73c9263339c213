//! The store's time, estimated by this process from the replies of the store.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tallystone_link::{Clock, wall_ms};

/// A reply counts for one to two periods: clocks drift and are set.
const ESTIMATE_PERIOD: Duration = Duration::from_secs(10);

/// A reply carries the store's time when it was made. That is never ahead of the store's time when the reply arrives, and
/// the fastest of many replies is nearly exact.
pub(super) struct StoreClock {
    clock: Clock,
    began: Instant,
    estimates: Mutex<ClockEstimates>,
}

/// Estimates of the store's time at the start of this process, by the fastest reply of this period and of the previous one.
#[derive(Default)]
struct ClockEstimates {
    period: u64,
    best_ms: Option<u64>,
    before_ms: Option<u64>,
}

impl StoreClock {
    pub(super) fn new(clock: Clock) -> StoreClock {
        StoreClock { clock, began: Instant::now(), estimates: Mutex::default() }
    }

    /// Takes in the time that a reply carries.
    pub(super) fn observe(&self, now_ms: u64) {
        let since = self.began.elapsed();
        let period = since.as_secs() / ESTIMATE_PERIOD.as_secs();
        let begin_ms = now_ms.saturating_sub(since.as_millis() as u64);
        let mut estimates = self.estimates.lock().unwrap_or_else(PoisonError::into_inner);
        if estimates.period != period {
            let before_ms = if period == estimates.period + 1 { estimates.best_ms } else { None };
            *estimates = ClockEstimates { period, best_ms: None, before_ms };
        }
        estimates.best_ms = estimates.best_ms.max(Some(begin_ms));
    }

    /// The store's time, in Unix ms; before the first reply, this machine's time.
    pub(super) fn now_ms(&self) -> u64 {
        if let test @ Clock::Test(_) = &self.clock {
            return test.argument();
        }
        let estimates = self.estimates.lock().unwrap_or_else(PoisonError::into_inner);
        match estimates.best_ms.max(estimates.before_ms) {
            Some(begin_ms) => begin_ms + self.began.elapsed().as_millis() as u64,
            None => wall_ms(),
        }
    }
}
