//! How often a namespace is searched for counters that need attention: often while there are some, seldom while it is idle.

use std::time::Duration;
use tokio::time::Instant;

/// The pause after a search that found something.
pub(crate) const PAUSE: Duration = Duration::from_millis(250);
/// The longest pause. An idle namespace costs two commands of Redis for each shard in this time.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The next search of a namespace.
pub(crate) struct Pace {
    pause: Duration,
    due_at: Instant,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { pause: PAUSE, due_at: Instant::now() }
    }
}

impl Pace {
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now >= self.due_at
    }

    pub(crate) fn due_at(&self) -> Instant {
        self.due_at
    }

    /// A search found so many counters of one shard; with `most` there may be more.
    pub(crate) fn note(&mut self, found: usize, most: usize, now: Instant) {
        let pause = if found == 0 { (self.pause * 2).min(PAUSE_MAX) } else { PAUSE };
        self.pause = pause;
        self.due_at = if found == most { now } else { now + pause };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n12_an_idle_namespace_is_searched_every_two_seconds_and_one_with_changes_at_once() {
        let (mut pace, begun) = (Pace::default(), Instant::now());
        let mut pause = |found| {
            pace.note(found, 500, begun);
            assert_eq!(pace.is_due(begun), found == 500);
            assert!(pace.is_due(pace.due_at()));
            (pace.due_at() - begun).as_millis()
        };
        let idle: Vec<u128> = (0..6).map(|_| pause(0)).collect();
        assert_eq!(idle, [500, 1_000, 2_000, 2_000, 2_000, 2_000]);
        assert_eq!([pause(1), pause(500), pause(0)], [250, 0, 500]);
    }
}
