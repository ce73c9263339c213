//! The greatest ids of the last table, so that a few ids far above the others do not end the range of a table.

use crate::table::Found;
use std::collections::{BTreeSet, VecDeque};

/// Ids in slots that are known, at most: a roll moves them.
pub(super) const KNOWN_MAX: usize = 1_024;
/// Ids that a table has above one that is usual in it, at least.
const ABOVE_USUAL: usize = 63;

/// The greatest ids of the last table.
#[derive(Debug, Default)]
pub(crate) struct Outliers {
    /// The greatest ids with a slot, in order.
    slots: VecDeque<u64>,
    /// Ids in the extend dictionary that were above the lowest of `slots` when they came. So each id of that dictionary which is
    /// above the lowest of `slots` now is among them.
    extend: BTreeSet<u64>,
    /// The strays of the table. Some may have become 0 since.
    far: BTreeSet<u64>,
}

impl Outliers {
    /// An id has got this place.
    #[inline]
    pub(crate) fn add(&mut self, id: u64, found: Found) {
        match found {
            Found::Extend => self.add_extend(id),
            Found::Far => {
                self.far.insert(id);
            }
            _ => self.add_slot(id),
        }
    }

    /// Forgets all but the strays.
    pub(crate) fn leave_far(&mut self) {
        *self = Outliers { far: std::mem::take(&mut self.far), ..Outliers::default() };
    }

    /// Takes the lowest stray, if it is below this id.
    pub(crate) fn pop_far(&mut self, below: u64) -> Option<u64> {
        if self.has_far(below) { self.far.pop_first() } else { None }
    }

    /// Whether a stray is below this id.
    pub(crate) fn has_far(&self, below: u64) -> bool {
        self.far.first().is_some_and(|lowest| *lowest < below)
    }

    /// An id that is not among the outliers of a table that may have so many. `None`: too few ids are known.
    pub(crate) fn usual(&self, outliers: usize) -> Option<u64> {
        let place = self.slots.len().checked_sub(outliers.clamp(ABOVE_USUAL, KNOWN_MAX - 1) + 1)?;
        Some(self.slots[place])
    }

    #[inline]
    fn add_slot(&mut self, id: u64) {
        if self.slots.len() >= KNOWN_MAX && self.slots.front().is_some_and(|lowest| id < *lowest) {
            return;
        }
        match self.slots.back() {
            Some(greatest) if id < *greatest => {
                let place = self.slots.partition_point(|known| *known < id);
                self.slots.insert(place, id);
            }
            _ => self.slots.push_back(id),
        }
        if self.slots.len() > KNOWN_MAX {
            self.slots.pop_front();
        }
    }

    fn add_extend(&mut self, id: u64) {
        let lowest = self.slots.front().copied().unwrap_or(0);
        if id >= lowest {
            self.extend.insert(id);
        }
        while self.extend.first().is_some_and(|first| *first < lowest) {
            self.extend.pop_first();
        }
    }

    /// The lowest id from which on a table may begin for this id, so that at most `count` ids with slots move to it. `None`: more are
    /// above the id, which is late then.
    pub(crate) fn border(&self, id: u64, count: usize) -> Option<u64> {
        let below = self.slots.partition_point(|known| *known < id).checked_sub(1)?;
        let above = self.slots.len() - 1 - below;
        (above <= count.min(KNOWN_MAX - 1)).then(|| self.slots[below] + 1)
    }

    /// The greatest id with a slot.
    pub(crate) fn top(&self) -> Option<u64> {
        self.slots.back().copied()
    }

    /// Takes the known ids from `first` on, strays excepted: those with slots, and those in the extend dictionary.
    pub(crate) fn take_from(&mut self, first: u64) -> (Vec<u64>, BTreeSet<u64>) {
        let place = self.slots.partition_point(|known| *known < first);
        (self.slots.drain(place..).collect(), self.extend.split_off(&first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w2_the_border_leaves_few_ids_above_it() {
        let mut outliers = Outliers::default();
        assert_eq!((outliers.border(5, 10), outliers.top()), (None, None));
        for id in [10, 30, 20, 1 << 40] {
            outliers.add_slot(id);
        }
        assert_eq!(outliers.top(), Some(1 << 40));
        assert_eq!(outliers.border(35, 0), None, "one is above");
        assert_eq!(outliers.border(35, 1), Some(31));
        assert_eq!(outliers.border(25, 2), Some(21));
        assert_eq!(outliers.border(5, 100), None, "all are above");
        outliers.add_extend(15);
        outliers.add_extend(50);
        assert_eq!(outliers.take_from(31), (vec![1 << 40], BTreeSet::from([50])));
        assert_eq!(outliers.border(35, 0), Some(31));
    }

    #[test]
    fn w2_so_many_ids_are_known_and_no_more() {
        let mut outliers = Outliers::default();
        (0..10_000).rev().for_each(|id| outliers.add_slot(2 * id));
        (0..10_000).for_each(|id| outliers.add_extend(2 * id + 1));
        let lowest = 2 * (10_000 - KNOWN_MAX as u64);
        assert_eq!(outliers.border(lowest + 1, usize::MAX), Some(lowest + 1));
        assert_eq!(outliers.border(lowest - 1, usize::MAX), None);
        assert_eq!(outliers.extend.len(), KNOWN_MAX, "lower ones never move");
    }
}
