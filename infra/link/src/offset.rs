//! How far the clock of a new primary may be ahead of that of the primary before: leases that were granted by the other clock
//! must not end early (decision 248).

use crate::timeline::{Lineage, Timeline};

/// By how much a clock may drift from another one: 600 ppm, a little more than what NTP corrects a clock by.
const DRIFT_PPM: u64 = 600;
/// A measurement that took longer says little: another one is made soon.
const QUICK_MS: i64 = 100;

/// By how much a Redis's clock is ahead of this process's steady clock, at least and at most, in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offset {
    least_ms: i64,
    most_ms: i64,
    /// When it was measured, by the steady clock.
    at_ms: u64,
}

/// What a connection has found at its opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sight {
    pub(crate) lineage: Lineage,
    /// Of the node's clock; `None`: it did not say its time.
    pub(crate) offset: Option<Offset>,
    /// It was found among several nodes, of which each may have been the primary.
    pub(crate) is_of_several: bool,
}

/// The primary that a process knows, and the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KnownPrimaries {
    current: KnownPrimary,
    before: KnownPrimary,
    /// The primaries before those that it knows may have been other machines.
    is_of_several: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct KnownPrimary {
    timeline: Timeline,
    /// What is known from the measurements so far.
    offset: Option<Offset>,
}

/// By how much the clock of the current timeline is ahead of that of an earlier one, at most, in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// The earlier one.
    pub(crate) from: Timeline,
    /// Of that one.
    pub(crate) ahead_ms: u32,
    /// Of any other.
    pub(crate) otherwise_ms: u32,
}

impl Offset {
    /// From a time of Redis (Unix ms), read between two times of the steady clock (ms). Each is rounded down.
    pub(crate) fn measured(sent_ms: u64, store_ms: u64, received_ms: u64) -> Offset {
        let (least_ms, most_ms) = (store_ms as i64 - received_ms as i64 - 1, store_ms as i64 + 1 - sent_ms as i64);
        Offset { least_ms, most_ms, at_ms: received_ms }
    }

    /// Whether it was measured by a call that took no longer than usual.
    pub(crate) fn is_quick(&self) -> bool {
        self.most_ms - self.least_ms <= QUICK_MS
    }

    /// What this one and a later measurement of the same clock say together: one that took long says little. The later one alone, if the
    /// clock was certainly set meanwhile, that is by more than the later measurement took. A smaller step is found by the next quick one.
    fn with_later(self, later: Offset) -> Offset {
        let drift_ms = 1 + (later.at_ms.saturating_sub(self.at_ms) * DRIFT_PPM / 1_000_000) as i64;
        let least_ms = later.least_ms.max(self.least_ms - drift_ms);
        let most_ms = later.most_ms.min(self.most_ms + drift_ms);
        if least_ms <= most_ms { Offset { least_ms, most_ms, ..later } } else { later }
    }

    /// Whether it agrees with this process's wall clock, which is ahead of the steady one by `wall_ms`, within `skew_max_ms`.
    pub(crate) fn agrees(&self, wall_ms: i64, skew_max_ms: u32) -> bool {
        let bound_ms = i64::from(skew_max_ms);
        self.most_ms >= wall_ms - bound_ms && self.least_ms <= wall_ms + bound_ms
    }
}

impl KnownPrimaries {
    /// The timeline of the primary.
    pub(crate) fn timeline(&self) -> Timeline {
        self.current.timeline
    }

    /// Another measurement of a clock. Only one of the primary's is kept.
    pub(crate) fn measured(&mut self, timeline: Timeline, offset: Offset) {
        if timeline == self.current.timeline {
            self.current.offset = Some(self.current.offset.map_or(offset, |known| known.with_later(offset)));
        }
    }

    /// A connection leads to this primary.
    pub(crate) fn saw(&mut self, sight: Sight) {
        let timeline = sight.lineage.current;
        if timeline == self.current.timeline {
            return;
        }
        // A connection that is older than the last failover: what was measured since its opening is more exact.
        let is_before = timeline == self.before.timeline && self.before.offset.is_some();
        let offset = if is_before { self.before.offset } else { sight.offset };
        self.before = self.current;
        self.current = KnownPrimary { timeline, offset };
        self.is_of_several |= sight.is_of_several || sight.lineage.before.is_some();
    }

    /// How far the primary's clock may be ahead. `most_ms`: the most that is possible.
    pub(crate) fn ahead(&self, most_ms: u32) -> Ahead {
        let otherwise_ms = if self.is_of_several { most_ms } else { 0 };
        let ahead_ms = match (self.before.offset, self.current.offset) {
            (Some(before), Some(current)) => (current.most_ms - before.least_ms).clamp(0, i64::from(most_ms)) as u32,
            _ => otherwise_ms,
        };
        Ahead { from: self.before.timeline, ahead_ms, otherwise_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST_MS: u32 = 20_000;

    fn sight(timeline: u32, before: Option<u32>, offset: Option<Offset>) -> Sight {
        let lineage = Lineage { current: Timeline(timeline), before: before.map(Timeline) };
        Sight { lineage, offset, is_of_several: false }
    }

    fn ahead(from: u32, ahead_ms: u32, otherwise_ms: u32) -> Ahead {
        Ahead { from: Timeline(from), ahead_ms, otherwise_ms }
    }

    #[test]
    fn q17_the_difference_of_two_clocks_is_measured_through_the_steady_one() {
        let mut primaries = KnownPrimaries::default();
        primaries.saw(sight(1, None, Some(Offset::measured(0, 100_000, 2))));
        assert_eq!(
            (primaries.timeline(), primaries.ahead(MOST_MS)),
            (Timeline(1), ahead(0, 0, 0)),
            "the first that it knows"
        );
        // It is ahead by 99,997 ms at least.
        primaries.measured(Timeline(1), Offset::measured(5_000, 105_000, 5_002));
        primaries.measured(Timeline(2), Offset::measured(5_000, 900_000, 5_002));
        // And the next one by 105,001 ms at most.
        let next = Some(Offset::measured(10_000, 115_000, 10_004));
        primaries.saw(sight(2, Some(1), next));
        assert_eq!(primaries.ahead(MOST_MS), ahead(1, 5_004, MOST_MS));
        assert_eq!(primaries.ahead(3_000), ahead(1, 3_000, 3_000), "no more than is possible");
        // An old connection leads to the first one again, and then to the second.
        primaries.saw(sight(1, None, Some(Offset::measured(0, 700_000, 2))));
        assert_eq!(primaries.ahead(MOST_MS), ahead(2, 0, MOST_MS), "it is behind");
        primaries.saw(sight(2, Some(1), next));
        assert_eq!(primaries.ahead(MOST_MS), ahead(1, 5_004, MOST_MS));
    }

    #[test]
    fn q17_a_measurement_that_took_long_replaces_no_better_one() {
        let mut primaries = KnownPrimaries::default();
        primaries.saw(sight(1, None, Some(Offset::measured(0, 100_000, 2))));
        // The primary was frozen for ten seconds, and nothing else is known of its clock meanwhile.
        primaries.measured(Timeline(1), Offset::measured(5_000, 115_000, 15_000));
        let next = Some(Offset::measured(20_000, 120_000, 20_002));
        primaries.saw(sight(2, Some(1), next));
        assert_eq!(primaries.ahead(MOST_MS), ahead(1, 2, MOST_MS));
        // The clock was set by more than the measurement took.
        primaries.measured(Timeline(2), Offset::measured(25_000, 124_000, 26_000));
        primaries.saw(sight(3, Some(2), Some(Offset::measured(30_000, 130_000, 30_002))));
        assert_eq!(primaries.ahead(MOST_MS), ahead(2, 2_002, MOST_MS));
        // The machine stood still for ten seconds, and its clock too. The next quick measurement finds that.
        let slow = Offset::measured(35_000, 135_000, 45_000);
        primaries.measured(Timeline(3), slow);
        assert!(!slow.is_quick());
        let quick = Offset::measured(45_100, 135_100, 45_102);
        primaries.measured(Timeline(3), quick);
        assert!(quick.is_quick());
        primaries.saw(sight(4, Some(3), Some(Offset::measured(50_000, 150_000, 50_002))));
        assert_eq!(primaries.ahead(MOST_MS), ahead(3, 10_004, MOST_MS));
    }

    #[test]
    fn q17_a_restart_changes_no_clock_and_an_unknown_one_may_be_anything() {
        let mut primaries = KnownPrimaries::default();
        primaries.saw(sight(1, None, None));
        primaries.saw(sight(2, None, Some(Offset::measured(0, 100_000, 2))));
        assert_eq!(primaries.ahead(MOST_MS), ahead(1, 0, 0), "it was no replica");
        primaries.saw(sight(3, Some(9), None));
        assert_eq!(primaries.ahead(MOST_MS), ahead(2, MOST_MS, MOST_MS));
        primaries.saw(sight(4, None, None));
        assert_eq!(primaries.ahead(MOST_MS), ahead(3, MOST_MS, MOST_MS), "leases may be of before the failover");
        let mut primaries = KnownPrimaries::default();
        primaries.saw(Sight { is_of_several: true, ..sight(1, None, None) });
        assert_eq!(primaries.ahead(MOST_MS), ahead(0, MOST_MS, MOST_MS), "another node may have been the primary");
    }
}
