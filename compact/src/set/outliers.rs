//! The greatest ids of the last table, so that a few ids far above the others do not end the range of a table.

use crate::table::Found;
use std::collections::{BTreeSet, VecDeque};

/// Ids that a table has above one that is usual in it, at least, if so many are known.
const ABOVE_USUAL: usize = 63;
/// Memory of an id in a tree whose nodes are two thirds full.
const TREE_ID_BYTES: usize = 14;

/// The greatest ids of the last table, and its strays. An id whose record becomes 0 stays only if it keeps its slot.
#[derive(Debug, Default)]
pub(crate) struct Outliers {
    /// Ids with a slot, and ids that wait for one, in order: all that are not below `floor`.
    slots: VecDeque<u64>,
    /// Ids in the extend dictionary: all that are not below `floor`.
    extend: BTreeSet<u64>,
    /// No id below this one is known, strays excepted. It rises when there are too many; 0: all ids of the table are known.
    floor: u64,
    /// The strays of the table.
    far: BTreeSet<u64>,
}

impl Outliers {
    /// An id has got this place. `known_max`: ids with slots to keep.
    #[inline]
    pub(crate) fn add(&mut self, id: u64, found: Found, known_max: usize) {
        match found {
            Found::Extend => self.add_extend(id),
            Found::Far => {
                self.far.insert(id);
            }
            _ => self.add_slot(id, known_max),
        }
    }

    /// An id has no place any more.
    pub(crate) fn remove(&mut self, id: u64) {
        if let Ok(place) = self.slots.binary_search(&id) {
            self.slots.remove(place);
        }
        self.extend.remove(&id);
        self.far.remove(&id);
    }

    /// Forgets all but the strays.
    pub(crate) fn leave_far(&mut self) {
        *self = Outliers { far: std::mem::take(&mut self.far), ..Outliers::default() };
    }

    /// Takes the lowest stray, if it is below this id.
    pub(crate) fn pop_far(&mut self, below: u64) -> Option<u64> {
        if self.has_far(below) { self.far.pop_first() } else { None }
    }

    /// The lowest stray.
    pub(crate) fn lowest_far(&self) -> Option<u64> {
        self.far.first().copied()
    }

    /// Whether a stray is below this id.
    pub(crate) fn has_far(&self, below: u64) -> bool {
        self.lowest_far().is_some_and(|lowest| lowest < below)
    }

    /// Whether all ids of the table are known.
    pub(crate) fn is_complete(&self) -> bool {
        self.floor == 0
    }

    /// An id that is not among the outliers of a table that may have so many. `None`: too few ids are known.
    pub(crate) fn usual(&self, outliers: usize, known_max: usize) -> Option<u64> {
        let above = outliers.max(ABOVE_USUAL).min(known_max - 1);
        let place = self.slots.len().checked_sub(above + 1)?;
        Some(self.slots[place])
    }

    #[inline]
    fn add_slot(&mut self, id: u64, known_max: usize) {
        if id < self.floor {
            return;
        }
        match self.slots.back() {
            Some(greatest) if id <= *greatest => match self.slots.binary_search(&id) {
                // It had a place in a dictionary.
                Ok(_) => return,
                Err(place) => self.slots.insert(place, id),
            },
            _ => self.slots.push_back(id),
        }
        if self.slots.len() > known_max {
            let lowest = self.slots.pop_front();
            self.floor = lowest.map_or(self.floor, |lowest| lowest + 1);
        }
    }

    fn add_extend(&mut self, id: u64) {
        if id >= self.floor {
            self.extend.insert(id);
        }
        while self.extend.first().is_some_and(|first| *first < self.floor) {
            self.extend.pop_first();
        }
    }

    /// The lowest id from which on a table may begin for this id, so that at most `count` ids with slots move to it. `None`: more are
    /// above the id, which is late then.
    pub(crate) fn border(&self, id: u64, count: usize) -> Option<u64> {
        let below = self.slots.partition_point(|known| *known < id).checked_sub(1)?;
        let above = self.slots.len() - 1 - below;
        (above <= count).then(|| self.slots[below] + 1)
    }

    /// An id that is above each one with a slot, the greatest of all ids excepted.
    pub(crate) fn above_slots(&self) -> u64 {
        self.slots.back().map_or(self.floor, |top| top.saturating_add(1))
    }

    /// Takes the known ids from `first` on, strays excepted: those with slots, and those in the extend dictionary.
    pub(crate) fn take_from(&mut self, first: u64) -> BTreeSet<u64> {
        debug_assert!(first >= self.floor || self.is_complete(), "ids from {first} on are not known");
        let place = self.slots.partition_point(|known| *known < first);
        let mut ids = self.extend.split_off(&first);
        ids.extend(self.slots.drain(place..));
        ids
    }

    /// The same of all known ids.
    pub(crate) fn take_all(&mut self) -> BTreeSet<u64> {
        let mut ids = std::mem::take(&mut self.extend);
        ids.extend(self.slots.drain(..));
        ids
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u64>() + (self.extend.len() + self.far.len()) * TREE_ID_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN_MAX: usize = 100;

    #[test]
    fn w2_the_border_leaves_few_ids_above_it() {
        let mut outliers = Outliers::default();
        assert_eq!((outliers.border(5, 10), outliers.above_slots()), (None, 0));
        for id in [10, 30, 20, 1 << 40] {
            outliers.add_slot(id, KNOWN_MAX);
        }
        assert_eq!(outliers.above_slots(), (1 << 40) + 1);
        assert_eq!(outliers.border(35, 0), None, "one is above");
        assert_eq!(outliers.border(35, 1), Some(31));
        assert_eq!(outliers.border(25, 2), Some(21));
        assert_eq!(outliers.border(5, 100), None, "all are above");
        outliers.add_extend(15);
        outliers.add_extend(50);
        assert_eq!(outliers.take_from(31), BTreeSet::from([50, 1 << 40]));
        assert_eq!(outliers.border(35, 0), Some(31));
    }

    #[test]
    fn w2_so_many_ids_are_known_and_no_more() {
        let mut outliers = Outliers::default();
        (0..10_000).rev().for_each(|id| outliers.add_slot(2 * id, KNOWN_MAX));
        (0..10_000).for_each(|id| outliers.add_extend(2 * id + 1));
        let lowest = 2 * (10_000 - KNOWN_MAX as u64);
        assert_eq!(outliers.border(lowest + 1, usize::MAX), Some(lowest + 1));
        assert_eq!(outliers.border(lowest - 1, usize::MAX), None);
        assert_eq!(outliers.extend.len(), KNOWN_MAX + 1, "lower ones never move");
        assert!(!outliers.is_complete());
    }

    #[test]
    fn w2_an_id_is_known_once_while_it_has_a_place() {
        let mut outliers = Outliers::default();
        for _ in 0..2 {
            (1..=50).for_each(|id| outliers.add_slot(id, KNOWN_MAX));
        }
        assert_eq!((outliers.slots.len(), outliers.usual(40, KNOWN_MAX)), (50, None));
        (1..=20).for_each(|id| outliers.remove(id));
        (51..=120).for_each(|id| outliers.add_slot(id, KNOWN_MAX));
        assert_eq!((outliers.is_complete(), outliers.slots.len()), (true, KNOWN_MAX));
        assert_eq!(outliers.usual(40, KNOWN_MAX), Some(57));
        // Ids below those that were forgotten are not known, though there is room again.
        outliers.add_slot(121, KNOWN_MAX);
        (100..=121).for_each(|id| outliers.remove(id));
        outliers.add_slot(3, KNOWN_MAX);
        assert_eq!((outliers.is_complete(), outliers.slots.front()), (false, Some(&22)));
        (22..100).for_each(|id| outliers.remove(id));
        assert_eq!(outliers.above_slots(), 22);
    }

    #[test]
    fn w2_the_memory_of_strays_is_counted_and_ends_with_them() {
        let mut outliers = Outliers::default();
        (0..10_000).for_each(|id| outliers.add(id, Found::Far, KNOWN_MAX));
        assert!(outliers.memory_bytes() > 10_000 * size_of::<u64>());
        (0..9_999).for_each(|id| outliers.remove(id));
        assert!(outliers.memory_bytes() < 100 && outliers.has_far(u64::MAX));
    }
}
