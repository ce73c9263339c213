//! Whole records of a table that have no place in its slots.

use crate::hash::Hash;
use crate::record::Record;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// Records by id. They keep their places except that a removal moves the last one, so that a walk from the end to the beginning
/// meets each record that is there all the time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dictionary {
    entries: Vec<(u64, u64, Record)>,
    places: HashTable<u32>,
    heap_bytes: usize,
}

impl Dictionary {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    fn place(&self, id: u64, hash: Hash) -> Option<usize> {
        self.places.find(hash.bits(), |place| self.entries[*place as usize].0 == id).map(|place| *place as usize)
    }

    #[inline]
    pub(crate) fn contains(&self, id: u64, hash: Hash) -> bool {
        !self.entries.is_empty() && self.place(id, hash).is_some()
    }

    pub(crate) fn get(&self, id: u64, hash: Hash) -> Option<&Record> {
        self.place(id, hash).map(|place| &self.entries[place].2)
    }

    /// Changes a record, if there is one.
    pub(crate) fn change(&mut self, id: u64, hash: Hash, change: impl FnOnce(&mut Record)) {
        if let Some(place) = self.place(id, hash) {
            let record = &mut self.entries[place].2;
            self.heap_bytes -= record.heap_bytes();
            change(record);
            self.heap_bytes += record.heap_bytes();
        }
    }

    /// Adds a record, or replaces that of the id.
    pub(crate) fn insert(&mut self, id: u64, hash: Hash, record: Record) {
        self.heap_bytes += record.heap_bytes();
        let entries = &mut self.entries;
        let is_it = |place: &u32| entries[*place as usize].0 == id;
        match self.places.entry(hash.bits(), is_it, |place| entries[*place as usize].1) {
            Entry::Occupied(place) => {
                let old = std::mem::replace(&mut entries[*place.get() as usize].2, record);
                self.heap_bytes -= old.heap_bytes();
            }
            Entry::Vacant(vacant) => {
                vacant.insert(entries.len() as u32);
                entries.push((id, hash.bits(), record));
            }
        }
    }

    pub(crate) fn remove(&mut self, id: u64, hash: Hash) -> Option<Record> {
        let entries = &self.entries;
        let entry = self.places.find_entry(hash.bits(), |place| entries[*place as usize].0 == id).ok()?;
        let (place, _) = entry.remove();
        let (_, _, record) = self.entries.swap_remove(place as usize);
        self.heap_bytes -= record.heap_bytes();
        if let Some((_, moved, _)) = self.entries.get(place as usize) {
            let last = self.entries.len() as u32;
            *self.places.find_mut(*moved, |place| *place == last).expect("the last entry had a place") = place;
        }
        Some(record)
    }

    /// The record at a place.
    pub(crate) fn at(&self, place: usize) -> Option<(u64, &Record)> {
        self.entries.get(place).map(|(id, _, record)| (*id, record))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Record)> {
        self.entries.iter().map(|(id, _, record)| (*id, record))
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<(u64, u64, Record)>() + self.places.allocation_size() + self.heap_bytes
    }
}
