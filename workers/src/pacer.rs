//! The pause between two batches (N10): none while the store is quick, longer as it slows down.

use std::time::Duration;

/// A batch that takes no longer than this leaves the store enough time for other calls.
const QUICK: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The weight of the latest batch: one slow batch does not make a slow store.
const WEIGHT: f64 = 0.3;

/// A moving average of how long batches take.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    smoothed: Duration,
}

impl Pacer {
    /// Notes how long a batch took, and returns the pause before the next one.
    pub(crate) fn pause_after(&mut self, took: Duration) -> Duration {
        self.smoothed = self.smoothed.mul_f64(1.0 - WEIGHT) + took.mul_f64(WEIGHT);
        self.smoothed.saturating_sub(QUICK).min(PAUSE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n10_pauses_grow_as_the_store_slows_down_and_go_when_it_is_quick_again() {
        let mut pacer = Pacer::default();
        let mut pauses =
            |took, batches| (0..batches).map(|_| pacer.pause_after(Duration::from_millis(took))).last().unwrap();
        assert_eq!(pauses(5, 10), Duration::ZERO);
        assert_eq!(pauses(100, 1), Duration::ZERO, "one slow batch does not make a slow store");
        let slow = pauses(200, 20);
        assert!((100..=150).contains(&slow.as_millis()), "{slow:?}");
        assert_eq!(pauses(60_000, 20), PAUSE_MAX);
        assert_eq!(pauses(5, 60), Duration::ZERO);
    }
}
