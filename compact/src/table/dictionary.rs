//! Whole records of a table that have no place in its slots.

use crate::hash::Hash;
use crate::record::Record;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// Parts of a dictionary: when one grows it moves all its entries, so each must stay small.
const PARTS: usize = 256;
/// Entries of a part at most: a place has so many bits for them.
const ENTRY_BITS: u32 = 22;

/// Records by id. A removal moves the last entry of a part, so that a walk from the end to the beginning meets each record that
/// is there all the time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dictionary {
    /// None, or [`PARTS`]; fewer while all entries are taken out one by one.
    parts: Vec<Part>,
    len: usize,
    heap_bytes: usize,
}

#[derive(Clone, Debug, Default)]
struct Part {
    entries: Vec<(u64, u64, Record)>,
    places: HashTable<u32>,
}

impl Part {
    #[inline]
    fn place(&self, id: u64, hash: Hash) -> Option<usize> {
        self.places.find(hash.bits(), |place| self.entries[*place as usize].0 == id).map(|place| *place as usize)
    }
}

impl Dictionary {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn part(&self, hash: Hash) -> Option<&Part> {
        self.parts.get(part_of(hash))
    }

    #[inline]
    pub(crate) fn contains(&self, id: u64, hash: Hash) -> bool {
        self.part(hash).is_some_and(|part| part.place(id, hash).is_some())
    }

    #[inline]
    pub(crate) fn get(&self, id: u64, hash: Hash) -> Option<&Record> {
        let part = self.part(hash)?;
        part.place(id, hash).map(|place| &part.entries[place].2)
    }

    /// Changes a record, if there is one. Returns whether it is 0 now.
    pub(crate) fn change(&mut self, id: u64, hash: Hash, change: impl FnOnce(&mut Record)) -> bool {
        let Some(part) = self.parts.get_mut(part_of(hash)) else { return false };
        let Some(place) = part.place(id, hash) else { return false };
        let record = &mut part.entries[place].2;
        self.heap_bytes -= record.heap_bytes();
        change(record);
        self.heap_bytes += record.heap_bytes();
        record.is_zero()
    }

    /// The same; a record that is 0 then is removed. Returns whether it was.
    pub(crate) fn change_or_remove(&mut self, id: u64, hash: Hash, change: impl FnOnce(&mut Record)) -> bool {
        self.change(id, hash, change) && self.remove(id, hash).is_some()
    }

    /// Adds a record, or replaces that of the id.
    pub(crate) fn insert(&mut self, id: u64, hash: Hash, record: Record) {
        if self.parts.len() < PARTS {
            self.parts.resize_with(PARTS, Part::default);
        }
        self.heap_bytes += record.heap_bytes();
        let Part { entries, places } = &mut self.parts[part_of(hash)];
        let is_it = |place: &u32| entries[*place as usize].0 == id;
        match places.entry(hash.bits(), is_it, |place| entries[*place as usize].1) {
            Entry::Occupied(place) => {
                let old = std::mem::replace(&mut entries[*place.get() as usize].2, record);
                self.heap_bytes -= old.heap_bytes();
            }
            Entry::Vacant(vacant) => {
                vacant.insert(entries.len() as u32);
                entries.push((id, hash.bits(), record));
                self.len += 1;
            }
        }
    }

    pub(crate) fn remove(&mut self, id: u64, hash: Hash) -> Option<Record> {
        let Part { entries, places } = self.parts.get_mut(part_of(hash))?;
        let entry = places.find_entry(hash.bits(), |place| entries[*place as usize].0 == id).ok()?;
        let (place, _) = entry.remove();
        let (_, _, record) = entries.swap_remove(place as usize);
        if let Some((_, moved, _)) = entries.get(place as usize) {
            let last = entries.len() as u32;
            *places.find_mut(*moved, |place| *place == last).expect("the last entry had a place") = place;
        }
        self.len -= 1;
        self.heap_bytes -= record.heap_bytes();
        Some(record)
    }

    /// Takes out any entry: a walk goes the other way, so it still meets each record that stays. Frees what has become empty.
    pub(crate) fn pop(&mut self) -> Option<(u64, Hash, Record)> {
        while let Some(Part { entries, places }) = self.parts.last_mut() {
            if let Some((id, bits, record)) = entries.pop() {
                let last = entries.len() as u32;
                if let Ok(entry) = places.find_entry(bits, |place| *place == last) {
                    entry.remove();
                }
                self.len -= 1;
                self.heap_bytes -= record.heap_bytes();
                return Some((id, Hash::from_bits(bits), record));
            }
            self.parts.pop();
        }
        None
    }

    /// Where a walk begins.
    pub(crate) fn first_place(&self) -> u32 {
        self.begin_of(0)
    }

    /// Visits some entries from a place on, and returns the place of the next ones.
    pub(crate) fn walk(&self, place: u32, count: u32, mut visit: impl FnMut(u64, &Record)) -> Option<u32> {
        let (number, end) = (place >> ENTRY_BITS, place & ((1 << ENTRY_BITS) - 1));
        let part = self.parts.get(number as usize)?;
        let begin = end.saturating_sub(count);
        for (id, _, record) in part.entries.iter().take(end as usize).skip(begin as usize) {
            visit(*id, record);
        }
        match (begin, number as usize + 1) {
            (0, PARTS) => None,
            (0, next) => Some(self.begin_of(next)),
            (begin, _) => Some(number << ENTRY_BITS | begin),
        }
    }

    fn begin_of(&self, number: usize) -> u32 {
        let entries = self.parts.get(number).map_or(0, |part| part.entries.len() as u32);
        (number as u32) << ENTRY_BITS | entries
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Record)> {
        self.parts.iter().flat_map(|part| part.entries.iter().map(|(id, _, record)| (*id, record)))
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        // Entries and places of growing vectors are three quarters full on average.
        let entry = (size_of::<(u64, u64, Record)>() + size_of::<u32>() + 1) * 4 / 3;
        self.parts.capacity() * size_of::<Part>() + self.len * entry + self.heap_bytes
    }
}

#[inline]
fn part_of(hash: Hash) -> usize {
    // Other bits than those that the hash table of a part uses.
    (hash.bits() >> 24) as usize % PARTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn w2_a_walk_meets_what_stays_though_others_are_removed(
            ids in prop::collection::btree_set(0..5_000_u64, 1..300),
            removed in prop::collection::vec(any::<prop::sample::Index>(), 0..300),
            step in 1..5_u32,
        ) {
            let ids: Vec<u64> = ids.into_iter().collect();
            let mut dictionary = Dictionary::default();
            for id in &ids {
                dictionary.insert(*id, Hash::of(*id, 1), Record::new(vec![*id as i64, 1]));
            }
            let (mut place, mut met, mut stay) = (Some(dictionary.first_place()), BTreeMap::new(), ids.clone());
            let mut removed = removed.into_iter();
            while let Some(from) = place {
                place = dictionary.walk(from, step, |id, record| {
                    met.insert(id, record.clone());
                });
                if let Some(index) = removed.next() {
                    let id = *index.get(&ids);
                    let was_there = dictionary.remove(id, Hash::of(id, 1)).is_some();
                    prop_assert_eq!(was_there, stay.contains(&id));
                    stay.retain(|other| *other != id);
                }
            }
            prop_assert_eq!(dictionary.len(), stay.len());
            for id in stay {
                prop_assert_eq!(met.get(&id), Some(&Record::new(vec![id as i64, 1])));
                prop_assert_eq!(dictionary.get(id, Hash::of(id, 1)), met.get(&id));
            }
        }
    }
}
