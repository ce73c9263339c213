//! What a region publishes of a counter, and the sum of what all regions have published.

use crate::checkpoints::Checkpoint;
use crate::names::RegionName;
use crate::refusal::Refusal;
use serde::{Deserialize, Serialize};

/// What a region publishes of a counter: its latest checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionRecord {
    /// The later one has nothing of an earlier one. It is when the region created its namespace, in Unix ms, or a later time; if an
    /// earlier version has created it, its incarnation (N14).
    pub incarnation: u64,
    /// The time of the last clear that the count follows, in Unix ms; 0: none.
    pub cleared_ms: u64,
    /// The number of recounts.
    pub epoch: u32,
    /// The count holds all events of the region after the clear and before this time, in Unix ms.
    pub exact_to_ms: u64,
    /// The time of the latest event that the region has seen, in Unix ms.
    pub last_write_ms: u64,
    /// The sum of the region's adds after the clear.
    pub count: i64,
}

impl RegionRecord {
    /// The record of a checkpoint. `incarnation`: that of the records of its namespace.
    pub fn of(checkpoint: &Checkpoint, incarnation: u64) -> RegionRecord {
        let Checkpoint { count, exact_to_ms, last_write_ms, epoch, cleared_ms, .. } = *checkpoint;
        RegionRecord { incarnation, cleared_ms, epoch: epoch.number, exact_to_ms, last_write_ms, count }
    }

    /// Whether this record replaces another one of the same region and counter. Equal ones do not, so records may come twice
    /// and in any order: the greatest stays. `counter/lib/regions.lua` has the same comparison, and the reason for its order.
    pub fn is_later_than(&self, other: &RegionRecord) -> bool {
        self.order() > other.order()
    }

    fn order(&self) -> (u64, u64, u64, u32) {
        (self.incarnation, self.cleared_ms, self.exact_to_ms, self.epoch)
    }
}

/// The part of one region in a global count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionCount {
    /// The region.
    pub region: RegionName,
    /// The sum of its adds after the latest clear that is known.
    pub count: i64,
    /// This part holds every such event of the region before this time, in Unix ms; 0: nothing is known of the region.
    pub exact_to_ms: u64,
}

/// The count of a counter in all regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalCount {
    /// The sum of the parts.
    pub count: i64,
    /// The least of the times of the parts, in Unix ms.
    pub exact_to_ms: u64,
    /// In the order of the namespace's regions.
    pub parts: Vec<RegionCount>,
}

/// The sum over regions, each with its latest record that is known, or none.
///
/// Only adds after the latest clear of any region count. A region that has not followed this clear yet counts 0, exact to the
/// time of the clear: all that it has before is removed, and what it has after it is not known yet.
///
/// # Errors
/// [`Refusal::Overflow`]: the sum exceeds 64 bits.
pub fn global(known: &[(RegionName, Option<RegionRecord>)]) -> Result<GlobalCount, Refusal> {
    let cleared_ms =
        known.iter().flat_map(|(_, record)| record).map(|record| record.cleared_ms).max().unwrap_or_default();
    // The clear removes events up to its own millisecond.
    let exact_min_ms = if cleared_ms > 0 { cleared_ms + 1 } else { 0 };
    let part = |(region, record): &(RegionName, Option<RegionRecord>)| {
        let (count, exact_to_ms) = match record.filter(|record| record.cleared_ms == cleared_ms) {
            Some(record) => (record.count, record.exact_to_ms.max(exact_min_ms)),
            None => (0, exact_min_ms),
        };
        RegionCount { region: region.clone(), count, exact_to_ms }
    };
    let parts: Vec<RegionCount> = known.iter().map(part).collect();
    let sum: i128 = parts.iter().map(|part| i128::from(part.count)).sum();
    let count = i64::try_from(sum).map_err(|_| Refusal::Overflow)?;
    let exact_to_ms = parts.iter().map(|part| part.exact_to_ms).min().unwrap_or_default();
    Ok(GlobalCount { count, exact_to_ms, parts })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(cleared_ms: u64, exact_to_ms: u64, count: i64) -> Option<RegionRecord> {
        Some(RegionRecord { cleared_ms, exact_to_ms, count, ..RegionRecord::default() })
    }

    fn sum(records: &[Option<RegionRecord>]) -> (i64, u64) {
        let named = records.iter().zip(["eu", "us", "ap"]);
        let known: Vec<_> = named.map(|(record, name)| (RegionName::parse(name).unwrap(), *record)).collect();
        let global = global(&known).unwrap();
        (global.count, global.exact_to_ms)
    }

    #[test]
    fn n12_a_global_count_is_exact_to_the_least_time() {
        assert_eq!(sum(&[record(0, 500, 3), record(0, 900, -1)]), (2, 500));
        assert_eq!(sum(&[record(0, 500, 3), None]), (3, 0), "nothing is known of a region");
        assert_eq!(sum(&[record(0, i64::MAX as u64, i64::MAX), record(0, 500, i64::MIN)]), (-1, 500));
    }

    #[test]
    fn n12_a_region_that_has_not_followed_a_clear_counts_nothing() {
        assert_eq!(sum(&[record(700, 1_000, 4), record(0, 900, 100)]), (4, 701));
        assert_eq!(sum(&[record(700, 1_000, 4), record(600, 2_000, 100), record(700, 1_500, 1)]), (5, 701));
        assert_eq!(sum(&[record(700, 1_000, 4), None]), (4, 701));
        assert_eq!(sum(&[record(700, 500, 0), record(700, 1_000, 2)]), (2, 701), "a deletion's mark");
    }

    /// A counter's history in one region; its records arrive in any order, some twice, some never.
    #[test]
    fn n12_the_greatest_record_that_came_stays_in_whatever_order_records_come() {
        use rand::seq::SliceRandom;
        use rand::{Rng, SeedableRng};
        for seed in 0..200 {
            let mut random = rand::rngs::StdRng::seed_from_u64(seed);
            let mut history = vec![RegionRecord::default()];
            for count in 1..40 {
                let mut next = RegionRecord { count, ..history[history.len() - 1] };
                match random.random_range(0..4) {
                    // A rollup, a recount, a clear, a deletion after which the epochs begin again.
                    0 => next.exact_to_ms += 500,
                    1 => next.epoch += 1,
                    2 => (next.cleared_ms, next.exact_to_ms) = (next.exact_to_ms + 1, next.exact_to_ms + 500),
                    _ => {
                        (next.cleared_ms, next.epoch, next.exact_to_ms) =
                            (next.exact_to_ms + 1, 0, next.exact_to_ms + 500)
                    }
                }
                history.push(next);
            }
            let mut arriving: Vec<RegionRecord> = history.iter().copied().filter(|_| random.random_bool(0.7)).collect();
            let last = arriving.last().copied();
            arriving.extend_from_within(..arriving.len() / 2);
            arriving.shuffle(&mut random);
            let mut stands: Option<RegionRecord> = None;
            for record in arriving {
                if stands.is_none_or(|before| record.is_later_than(&before)) {
                    stands = Some(record);
                }
            }
            assert_eq!(stands, last, "seed {seed}");
        }
    }

    #[test]
    fn n12_a_later_record_has_a_later_clear_or_time_or_epoch() {
        let base = RegionRecord { incarnation: 1, cleared_ms: 1, epoch: 1, exact_to_ms: 1, last_write_ms: 9, count: 9 };
        let later = [
            RegionRecord { incarnation: 2, cleared_ms: 0, epoch: 0, exact_to_ms: 0, ..base },
            RegionRecord { cleared_ms: 2, epoch: 0, exact_to_ms: 0, ..base },
            RegionRecord { exact_to_ms: 2, epoch: 0, ..base },
            RegionRecord { epoch: 2, ..base },
        ];
        for record in later {
            assert!(record.is_later_than(&base) && !base.is_later_than(&record), "{record:?}");
        }
        assert!(!RegionRecord { last_write_ms: 10, count: 10, ..base }.is_later_than(&base));
    }
}
