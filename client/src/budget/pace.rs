//! How large a grant is: enough for an interval at the rate of the takes, and a share of the remainder, so that one process does not
//! hold the end of a budget.

use super::options::BudgetOptions;
use std::time::Duration;

/// The target before anything is known of the rate.
const TARGET_FIRST: i64 = 16;
/// A grant is at most the remainder divided by this, unless a single take needs more.
const SHARES: i64 = 8;
/// A target grows and falls by at most these factors from one grant to the next: a burst says little of the next second.
const GROWTH: i64 = 4;
const FALL: i64 = 2;

/// How many units the process should hold after a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    target: i64,
}

/// What a grant must serve, in units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    /// What the process holds.
    pub(super) left: i64,
    /// The largest take that was refused; 0: none.
    pub(super) demand: i64,
    /// What the limit leaves; not negative.
    pub(super) remainder: i64,
}

impl Need {
    /// The least that is of use.
    pub(super) fn least(&self) -> i64 {
        (self.demand - self.left).max(1)
    }
}

impl Pace {
    pub(super) fn new(options: &BudgetOptions) -> Pace {
        Pace { target: TARGET_FIRST.min(options.grant_max) }
    }

    /// Follows the rate: this number of units was taken in the time since the last grant was requested.
    pub(super) fn follow(&mut self, taken: u64, elapsed: Duration, options: &BudgetOptions) {
        let elapsed_us = elapsed.as_micros().max(1);
        let of_interval = u128::from(taken).saturating_mul(u128::from(options.grant_interval_ms) * 1_000) / elapsed_us;
        let of_interval = i64::try_from(of_interval).unwrap_or(i64::MAX);
        let target = of_interval.clamp(self.target / FALL, self.target.saturating_mul(GROWTH));
        self.target = target.clamp(1, options.grant_max);
    }

    /// The units to request; 0: the process holds enough. The remainder must be at least [`Need::least`].
    pub(super) fn grant(&self, need: Need, options: &BudgetOptions) -> i64 {
        let wanted = self.target.max(need.demand) - need.left;
        let share = (need.remainder / SHARES).max(need.least());
        wanted.min(share).min(need.remainder).clamp(0, options.grant_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn options() -> BudgetOptions {
        BudgetOptions { grant_interval_ms: 500, grant_max: 1_000, ..BudgetOptions::default() }
    }

    fn grant(target: i64, left: i64, demand: i64, remainder: i64) -> i64 {
        Pace { target }.grant(Need { left, demand, remainder }, &options())
    }

    #[test]
    fn l4_a_target_serves_the_takes_of_an_interval_within_bounds() {
        let followed = |target: i64, taken: u64, elapsed: Duration| {
            let mut pace = Pace { target };
            pace.follow(taken, elapsed, &options());
            pace.target
        };
        assert_eq!(followed(100, 240, SECOND), 120);
        assert_eq!(followed(100, 10_000, SECOND), 400, "at most four times the last one");
        assert_eq!(followed(100, 0, SECOND), 50, "at least half of it");
        assert_eq!(followed(800, u64::MAX, Duration::ZERO), 1_000, "the stated maximum");
        assert_eq!(followed(1, 0, SECOND), 1);
        assert_eq!(Pace::new(&BudgetOptions { grant_max: 3, ..options() }), Pace { target: 3 });
    }

    #[test]
    fn l4_a_grant_fills_up_to_the_target_and_leaves_the_tail_to_others() {
        assert_eq!(grant(100, 30, 0, 1_000_000), 70);
        assert_eq!(grant(100, 100, 0, 1_000_000), 0, "nothing is missing");
        assert_eq!(grant(100, 0, 0, 80), 10, "an eighth of the remainder");
        assert_eq!(grant(100, 0, 0, 7), 1);
        assert_eq!(grant(100, 0, 0, 1), 1);
        assert_eq!(grant(1_000, 0, 0, i64::MAX), 1_000);
    }

    #[test]
    fn l4_a_take_that_needs_more_than_a_share_gets_it() {
        assert_eq!(grant(100, 0, 60, 80), 60);
        assert_eq!(grant(10, 5, 60, 1_000_000), 55, "more than the target");
        assert_eq!(grant(10, 5, 60, 55), 55, "all of it");
        assert_eq!(grant(100, 0, 1_000, i64::MAX), 1_000);
    }
}
