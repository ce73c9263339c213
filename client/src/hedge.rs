//! Hedged calls: when a call is sent a second time, and how many may be.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What one hedge costs, in thousandths of itself.
const HEDGE: u32 = 1_000;
/// Hedges that may be sent at once after a quiet time.
const BURST: u32 = 10 * HEDGE;

/// When a call that has no answer yet is sent a second time, to another server or on another connection to the same one.
/// The first answer counts; the other attempt is dropped. A Dequeue that found no message waits for the other attempt, which may have
/// leased one.
///
/// Enqueue, Dequeue, Complete, Release, ExtendLease, the calls of counters and all reads are hedged. They
/// [can be repeated](crate#every-call-can-be-repeated), so a hedge has no second effect. The exception is an add to a
/// `BEST_EFFORT` counter, which may then count twice. Cancel and the operator's calls are not hedged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hedge {
    after: Duration,
    share: f64,
}

impl Hedge {
    /// A second attempt after this time without an answer: about the 99th percentile of the calls, so that few are hedged. A
    /// Dequeue that may wait in the server has its `wait_ms` longer.
    pub fn after(after: Duration) -> Hedge {
        Hedge { after, share: 0.1 }
    }

    /// At most this share of the calls is hedged, beyond a burst of ten: when a server is slow under its load, hedges must
    /// not double that load. From 0 to 1; default 0.1.
    #[must_use]
    pub fn share(mut self, share: f64) -> Hedge {
        self.share = share.clamp(0.0, 1.0);
        self
    }
}

/// A [`Hedge`], and what is left of its budget.
#[derive(Debug)]
pub(crate) struct Hedging {
    after: Duration,
    /// What one call adds to the budget.
    earned: u32,
    budget: AtomicU32,
}

impl Hedging {
    pub(crate) fn new(hedge: Hedge) -> Hedging {
        let earned = (hedge.share * f64::from(HEDGE)).round() as u32;
        Hedging { after: hedge.after, earned, budget: AtomicU32::new(BURST) }
    }

    pub(crate) fn after(&self) -> Duration {
        self.after
    }

    /// A call begins.
    pub(crate) fn earn(&self) {
        let more = |budget: u32| Some((budget + self.earned).min(BURST));
        let _ = self.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// Takes one hedge from the budget, if it has one.
    pub(crate) fn spend(&self) -> bool {
        let less = |budget: u32| budget.checked_sub(HEDGE);
        self.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_the_calls_is_hedged_after_a_burst_of_ten() {
        let hedging = Hedging::new(Hedge::after(Duration::from_millis(20)));
        let spent = |calls: u32| {
            (0..calls).filter(|_| {
                hedging.earn();
                hedging.spend()
            })
        };
        assert_eq!(spent(1_000).count(), 109, "ten, and a tenth of a thousand while the burst was used up");
        assert_eq!(spent(1_000).count(), 100);
        assert!(!Hedging::new(Hedge::after(Duration::ZERO).share(-1.0)).earned > 0);
    }
}
