//! Whole records of a table that have no place in its slots.

mod entries;
mod part;

use crate::hash::Hash;
use crate::record::Record;
use entries::{CHUNK, Entry};
use part::Part;

/// Parts of a dictionary: each grows separately.
const PARTS: usize = 256;
/// Entries of a part at most: a place has so many bits for them.
const ENTRY_BITS: u32 = 22;

/// Records by id. However many there are, a change moves some entries at most. A removal moves the last entry of a part, so that a walk from
/// the end to the beginning meets each record that is there all the time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dictionary {
    /// None, or [`PARTS`]; fewer while all entries are taken out one by one.
    parts: Vec<Part>,
    len: usize,
    heap_bytes: usize,
}

impl Dictionary {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn contains(&self, id: u64, hash: Hash) -> bool {
        self.parts.get(part_of(hash)).is_some_and(|part| part.place(id, hash).is_some())
    }

    #[inline]
    pub(crate) fn get(&self, id: u64, hash: Hash) -> Option<&Record> {
        self.parts.get(part_of(hash))?.get(id, hash)
    }

    /// Changes a record, if there is one. Returns whether it is 0 now.
    pub(crate) fn change(&mut self, id: u64, hash: Hash, change: impl FnOnce(&mut Record)) -> bool {
        let part = self.parts.get_mut(part_of(hash));
        let Some(record) = part.and_then(|part| part.get_mut(id, hash)) else { return false };
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
        let number = part_of(hash);
        let part = &mut self.parts[number];
        if let Some(current) = part.get_mut(id, hash) {
            self.heap_bytes -= std::mem::replace(current, record).heap_bytes();
        } else {
            part.push(id, hash, record, (number, PARTS));
            self.len += 1;
        }
    }

    pub(crate) fn remove(&mut self, id: u64, hash: Hash) -> Option<Record> {
        let record = self.parts.get_mut(part_of(hash))?.remove(id, hash)?;
        self.len -= 1;
        self.heap_bytes -= record.heap_bytes();
        Some(record)
    }

    /// Takes out any entry: a walk goes the other way, so it still meets each record that stays. Frees what has become empty.
    pub(crate) fn pop(&mut self) -> Option<(u64, Hash, Record)> {
        while let Some(part) = self.parts.last_mut() {
            if let Some(entry) = part.pop() {
                self.len -= 1;
                self.heap_bytes -= entry.2.heap_bytes();
                return Some(entry);
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
        for (id, _, record) in part.entries().iter_from(begin as usize).take((end - begin) as usize) {
            visit(*id, record);
        }
        match (begin, number as usize + 1) {
            (0, PARTS) => None,
            (0, next) => Some(self.begin_of(next)),
            (begin, _) => Some(number << ENTRY_BITS | begin),
        }
    }

    fn begin_of(&self, number: usize) -> u32 {
        let entries = self.parts.get(number).map_or(0, |part| part.entries().len() as u32);
        (number as u32) << ENTRY_BITS | entries
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Record)> {
        let entries = self.parts.iter().flat_map(|part| part.entries().iter_from(0));
        entries.map(|(id, _, record)| (*id, record))
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        // On average, the last chunk of a part is three quarters full, and an index little more than half.
        let entries = self.len + self.len / PARTS % CHUNK * PARTS / 3;
        let places = self.len * (size_of::<u32>() + 1) * 15 / 8;
        self.parts.capacity() * size_of::<Part>() + entries * size_of::<Entry>() + places + self.heap_bytes
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

    /// A hash that leads to one of two parts: so they grow, and give up their first index.
    fn hash(id: u64) -> Hash {
        Hash::from_bits(Hash::of(id, 1).bits() & !(0xfe << 24))
    }

    fn record(id: u64) -> Record {
        Record::new(vec![id as i64, 1])
    }

    /// A dictionary of these ids, and of others that are gone: so that some parts are growing.
    fn grown(ids: &[u64], others: u64) -> Dictionary {
        let mut dictionary = Dictionary::default();
        for id in ids.iter().copied().chain(1 << 32..(1 << 32) + others) {
            dictionary.insert(id, hash(id), record(id));
        }
        for id in 1 << 32..(1 << 32) + others {
            assert_eq!(dictionary.remove(id, hash(id)), Some(record(id)));
        }
        dictionary
    }

    proptest! {
        #[test]
        fn w2_a_walk_meets_what_stays_though_others_come_and_go(
            ids in prop::collection::btree_set(0..50_000_u64, 1..4_000),
            others in 0..500_u64,
            removed in prop::collection::vec(any::<prop::sample::Index>(), 0..4_000),
            step in 1..50_u32,
        ) {
            let ids: Vec<u64> = ids.into_iter().collect();
            let mut dictionary = grown(&ids, others);
            let (mut place, mut met, mut stay) = (Some(dictionary.first_place()), BTreeMap::new(), ids.clone());
            let (mut removed, mut new) = (removed.into_iter(), 1 << 40..);
            while let Some(from) = place {
                place = dictionary.walk(from, step, |id, record| {
                    met.insert(id, record.clone());
                });
                for index in removed.by_ref().take(step as usize) {
                    let id = *index.get(&ids);
                    let was_there = dictionary.remove(id, hash(id)).is_some();
                    prop_assert_eq!(was_there, stay.contains(&id));
                    stay.retain(|other| *other != id);
                }
                for id in new.by_ref().take(2) {
                    dictionary.insert(id, hash(id), record(id));
                }
            }
            prop_assert_eq!(dictionary.len(), stay.len() + (new.start - (1 << 40)) as usize);
            for id in stay.into_iter() {
                prop_assert_eq!(met.get(&id), Some(&record(id)));
            }
        }

        #[test]
        fn w2_each_record_is_found_while_the_parts_grow(
            changes in prop::collection::vec((0..3_000_u64, 0..10_u8), 1..6_000),
            first in 0..3_000_u64,
        ) {
            let ids: Vec<u64> = (0..first).collect();
            let (mut dictionary, mut expected) = (grown(&ids, 0), BTreeMap::from_iter(ids.iter().map(|id| (*id, record(*id)))));
            for (id, change) in changes {
                match change {
                    0..6 => {
                        dictionary.insert(id, hash(id), record(id + 7));
                        expected.insert(id, record(id + 7));
                    }
                    6..9 => prop_assert_eq!(dictionary.remove(id, hash(id)), expected.remove(&id)),
                    _ => if let Some((id, bits, record)) = dictionary.pop() {
                        prop_assert_eq!(bits.bits(), hash(id).bits());
                        prop_assert_eq!(Some(record), expected.remove(&id));
                    },
                }
                prop_assert_eq!(dictionary.get(id, hash(id)), expected.get(&id));
            }
            prop_assert_eq!(dictionary.len(), expected.len());
            prop_assert_eq!(dictionary.heap_bytes, expected.values().map(Record::heap_bytes).sum::<usize>());
            for id in 0..3_000 {
                prop_assert_eq!(dictionary.get(id, hash(id)), expected.get(&id));
            }
            let met: BTreeMap<u64, Record> = dictionary.iter().map(|(id, record)| (id, record.clone())).collect();
            prop_assert_eq!(met, expected);
        }
    }
}
