//! The highest counts of a namespace (N16).

use crate::names::CounterName;
use crate::redis::ListedCounter;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Collects the highest counts of the counters that a walk offers, each counter once.
#[derive(Debug)]
pub struct Highest {
    limit: usize,
    /// With those that have the highest counts so far.
    found: BTreeMap<CounterName, ListedCounter>,
    /// A count below this is not among the highest.
    floor: i64,
}

impl Highest {
    /// Collects this number of counters, at least one.
    pub fn new(limit: usize) -> Highest {
        Highest { limit, found: BTreeMap::new(), floor: i64::MIN }
    }

    /// Takes a counter of the walk. A walk may offer a counter again: then the later count stands, unless it is too low to be
    /// among the highest.
    pub fn offer(&mut self, listed: ListedCounter) {
        if listed.checkpoint.count < self.floor {
            return;
        }
        self.found.insert(listed.counter.clone(), listed);
        // Not at each offer, so that one costs a comparison or two on average.
        if self.found.len() >= 4 * self.limit {
            let highest = self.highest();
            self.floor = highest.last().map_or(i64::MIN, |last| last.checkpoint.count);
            self.found = highest.into_iter().map(|listed| (listed.counter.clone(), listed)).collect();
        }
    }

    /// The highest counts, the highest first; counters with the same count in the order of their names.
    pub fn into_highest(mut self) -> Vec<ListedCounter> {
        self.highest()
    }

    fn highest(&mut self) -> Vec<ListedCounter> {
        // In the order of the names, and the sort keeps the order of what is equal.
        let mut highest: Vec<ListedCounter> = std::mem::take(&mut self.found).into_values().collect();
        highest.sort_by_key(|listed| Reverse(listed.checkpoint.count));
        highest.truncate(self.limit);
        highest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoints::Checkpoint;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn listed(number: u8, count: i64) -> ListedCounter {
        let counter = CounterName::parse(format!("c{number:03}")).expect("a name");
        ListedCounter { counter, checkpoint: Checkpoint { count, ..Checkpoint::default() } }
    }

    #[test]
    fn n16_the_highest_are_those_of_a_sorted_list() {
        for seed in 0..500 {
            let mut rng = StdRng::seed_from_u64(seed);
            let (counters, limit) = (rng.random_range(0..200), rng.random_range(1..20));
            let mut all: Vec<ListedCounter> = (0..counters).map(|it| listed(it, rng.random_range(-9..9))).collect();
            let middle = rng.random_range(0..=all.len());
            let mut highest = Highest::new(limit);
            // Some of them again: a walk may.
            for offered in all[middle..].iter().chain(&all[..middle]).chain(&all[middle..]) {
                highest.offer(offered.clone());
            }
            all.sort_by_key(|listed| Reverse(listed.checkpoint.count));
            all.truncate(limit);
            assert_eq!(highest.into_highest(), all, "seed {seed}");
        }
    }

    #[test]
    fn n16_a_counter_that_is_offered_again_is_there_once() {
        let mut highest = Highest::new(1);
        for offered in [listed(1, 5), listed(2, 4), listed(1, 3)] {
            highest.offer(offered);
        }
        assert_eq!(highest.into_highest(), [listed(2, 4)]);
    }
}
