//! A part of a dictionary: entries, and an index that grows in steps.

use super::entries::{Entries, Entry};
use crate::hash::Hash;
use crate::record::Record;
use hashbrown::HashTable;
use std::ops::Range;

/// A larger index takes over the places of a smaller one step by step.
const AT_ONCE: usize = 512;
/// Places that move to a new index for each entry that comes. It has room for half as many new ones at least.
const MOVED: u32 = 8;
/// Indexes of the parts grow when some room is left, up to this part of it: each at another time.
const SPREAD_PART: usize = 4;

/// Records by id, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    entries: Entries,
    /// The places of all entries, those that wait excepted.
    index: HashTable<u32>,
    growth: Option<Box<Growth>>,
}

/// An index has begun that takes over the places of the earlier one.
#[derive(Clone, Debug)]
struct Growth {
    /// It has the places that wait, and some that have moved since.
    earlier: HashTable<u32>,
    /// Places that are still to move.
    waiting: Range<u32>,
}

impl Part {
    pub(super) fn entries(&self) -> &Entries {
        &self.entries
    }

    #[inline]
    pub(super) fn get(&self, id: u64, hash: Hash) -> Option<&Record> {
        self.place(id, hash).map(|place| &self.entries.get(place).2)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: u64, hash: Hash) -> Option<&mut Record> {
        let place = self.place(id, hash)?;
        Some(&mut self.entries.get_mut(place).2)
    }

    #[inline]
    pub(super) fn place(&self, id: u64, hash: Hash) -> Option<u32> {
        let found = self.index.find(hash.bits(), |place| self.entries.get(*place).0 == id);
        if found.is_none() && self.growth.is_some() { self.earlier_place(id, hash) } else { found.copied() }
    }

    #[cold]
    fn earlier_place(&self, id: u64, hash: Hash) -> Option<u32> {
        let earlier = &self.growth.as_ref()?.earlier;
        earlier.find(hash.bits(), |place| self.entries.get(*place).0 == id).copied()
    }

    fn waits(&self, place: u32) -> bool {
        self.growth.as_ref().is_some_and(|growth| growth.waiting.contains(&place))
    }

    /// Adds a record of an absent id at the end. `number`: which part of how many this is.
    pub(super) fn push(&mut self, id: u64, hash: Hash, record: Record, number: (usize, usize)) {
        self.make_room(number);
        self.index_place(hash, self.entries.len() as u32);
        self.entries.push((id, hash, record));
    }

    pub(super) fn remove(&mut self, id: u64, hash: Hash) -> Option<Record> {
        let mut free = self.place(id, hash)?;
        let waits = self.waits(free);
        self.forget(hash, free);
        // The places that wait stay one range: the last of them gets the entry's place.
        if let Some(last) = self.growth.as_ref().filter(|_| waits).map(|growth| growth.waiting.end - 1) {
            self.shift(last, free);
            self.end_waiting(last);
            free = last;
        }
        self.shift(self.entries.len() as u32 - 1, free);
        let (_, _, record) = self.entries.pop()?;
        self.end_waiting(self.entries.len() as u32);
        Some(record)
    }

    /// Takes out the last entry.
    pub(super) fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop()?;
        let last = self.entries.len() as u32;
        self.forget(entry.1, last);
        self.end_waiting(last);
        Some(entry)
    }

    /// Moves the entry at a place to one that no index has; what is there moves the other way.
    fn shift(&mut self, from: u32, to: u32) {
        if from == to {
            return;
        }
        let hash = self.entries.get(from).1;
        if self.waits(from) == self.waits(to) {
            let known = self.side(from).find_mut(hash.bits(), |place| *place == from);
            *known.expect("each entry has a place") = to;
        } else {
            self.forget(hash, from);
            self.index_place(hash, to);
        }
        self.entries.swap(from, to);
    }

    /// The index that has a place.
    fn side(&mut self, place: u32) -> &mut HashTable<u32> {
        match &mut self.growth {
            Some(growth) if growth.waiting.contains(&place) => &mut growth.earlier,
            _ => &mut self.index,
        }
    }

    fn index_place(&mut self, hash: Hash, place: u32) {
        let entries = &self.entries;
        self.index.insert_unique(hash.bits(), place, |place| entries.get(*place).1.bits());
    }

    /// Removes a place from its index.
    fn forget(&mut self, hash: Hash, place: u32) {
        if let Ok(entry) = self.side(place).find_entry(hash.bits(), |other| *other == place) {
            entry.remove();
        }
    }

    /// No place waits from this one on.
    fn end_waiting(&mut self, end: u32) {
        if let Some(growth) = &mut self.growth {
            growth.waiting.end = growth.waiting.end.min(end);
        }
        self.end_growth();
    }

    fn end_growth(&mut self) {
        self.growth = self.growth.take().filter(|growth| !growth.waiting.is_empty());
    }

    /// Moves some places to the index. Without any, begins a larger index if this one has no room: a hash table that grows by itself moves
    /// all its places at once, and also if removals have used up its room.
    fn make_room(&mut self, (number, parts): (usize, usize)) {
        let Some(growth) = &mut self.growth else {
            let (len, capacity) = (self.index.len(), self.index.capacity());
            if len >= AT_ONCE && capacity - len <= capacity / SPREAD_PART * number / parts {
                let earlier = std::mem::replace(&mut self.index, HashTable::with_capacity(len + len / 2));
                self.growth = Some(Box::new(Growth { earlier, waiting: 0..len as u32 }));
            }
            return;
        };
        let begin = growth.waiting.start;
        let end = growth.waiting.end.min(begin + MOVED);
        growth.waiting.start = end;
        for place in begin..end {
            self.index_place(self.entries.get(place).1, place);
        }
        self.end_growth();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries from which an index must not move all its places at once.
    const LARGE: usize = 1_000;

    fn waiting(part: &Part) -> usize {
        part.growth.as_ref().map_or(0, |growth| growth.waiting.len())
    }

    fn push(part: &mut Part, id: u64, number: usize) {
        let is_full = part.index.len() >= LARGE && part.index.capacity() == part.index.len();
        let (bytes, waited) = (part.index.allocation_size(), waiting(part));
        part.push(id, Hash::of(id, 1), Record::default(), (number, 256));
        let begins = waiting(part) > waited;
        assert!(!is_full || begins, "an index of {} places grows all at once", part.index.len());
        assert!(begins || part.index.len() <= LARGE || part.index.allocation_size() == bytes);
        assert!(begins || waited - waiting(part) <= MOVED as usize);
    }

    #[test]
    fn w1_a_part_grows_by_a_few_places_for_each_entry() {
        for number in [0, 100, 255] {
            let mut part = Part::default();
            for id in 0..100_000 {
                push(&mut part, id, number);
            }
            assert!((0..100_000).all(|id| part.get(id, Hash::of(id, 1)).is_some()));
            assert_eq!(part.index.len() + waiting(&part), 100_000);
        }
    }

    /// Entries that come and go use up the room of an index, though it has few.
    #[test]
    fn w1_a_part_whose_entries_change_does_not_index_all_at_once() {
        let mut part = Part::default();
        for id in 0..200_000 {
            push(&mut part, id, 0);
            if let Some(old) = id.checked_sub(3_000) {
                assert_eq!(part.remove(old, Hash::of(old, 1)), Some(Record::default()));
            }
        }
        assert!((197_000..200_000).all(|id| part.get(id, Hash::of(id, 1)).is_some()));
        assert!(part.index.capacity() < 16_384, "{}", part.index.capacity());
        while part.pop().is_some() {}
        assert!(part.index.is_empty() && part.growth.is_none() && part.entries.len() == 0);
    }
}
