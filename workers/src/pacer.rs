//! The pause between two batches (N10): none while the store is quick, longer as it slows down.

use std::time::Duration;

/// A batch that takes so long leaves the store enough time for others.
const QUICK: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How much the latest batch weighs: one slow batch is no slow store.
const WEIGHT: f64 = 0.3;

/// Watches how long batches take.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    smoothed: Duration,
}

impl Pacer {
    /// A batch took so long: how long the next one waits.
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
        assert_eq!(pauses(100, 1), Duration::ZERO, "one slow batch is no slow store");
        let slow = pauses(200, 20);
        assert!((100..=150).contains(&slow.as_millis()), "{slow:?}");
        assert_eq!(pauses(60_000, 20), PAUSE_MAX);
        assert_eq!(pauses(5, 60), Duration::ZERO);
    }
}
