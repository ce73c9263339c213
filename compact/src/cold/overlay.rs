//! What was written to a cold table since its file was written, in the order of the ids.

use super::Patch;
use super::filter::Filter;
use crate::record::Record;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// What an overlay has for one id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The whole record, whatever the file has. A record of zeros hides that of the file.
    Absolute(Record),
    /// Changes to the record below, which was not read.
    Patch(Patch),
}

/// Memory of an entry: key and value in the leaf of a tree that is two thirds full, and its share of the branches.
const ENTRY_BYTES: usize = (size_of::<u64>() + size_of::<Entry>()) * 8 / 5;
/// What the allocator adds to a block, and rounds it up by.
const BLOCK_BYTES: usize = 12;

/// Writes by id. A tree grows by one node at a time: a hash map would stop the engine to move all its entries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overlay {
    entries: BTreeMap<u64, Entry>,
    filter: Filter,
    heap_bytes: usize,
}

impl Overlay {
    #[inline]
    pub(crate) fn get(&self, id: u64) -> Option<&Entry> {
        if self.filter.may_have(id) { self.entries.get(&id) } else { None }
    }

    /// Reads the line of memory that says of most ids that they have no entry.
    #[inline]
    pub(crate) fn touch(&self, id: u64) {
        self.filter.touch(id);
    }

    pub(crate) fn insert(&mut self, id: u64, entry: Entry) {
        self.heap_bytes += heap_bytes(&entry);
        match self.entries.insert(id, entry) {
            Some(old) => self.heap_bytes -= heap_bytes(&old),
            None => self.filter.add(id, &self.entries),
        }
    }

    /// Changes the entry of an id; without one, an empty patch.
    pub(crate) fn change(&mut self, id: u64, change: impl FnOnce(&mut Entry)) {
        let mut is_new = false;
        let entry = self.entries.entry(id).or_insert_with(|| {
            is_new = true;
            Entry::Patch(Patch::default())
        });
        let before = heap_bytes(entry);
        change(entry);
        self.heap_bytes += heap_bytes(entry);
        self.heap_bytes -= before;
        if is_new {
            self.filter.add(id, &self.entries);
        }
    }

    /// Puts later writes above these.
    pub(crate) fn append(&mut self, later: Overlay) {
        for (id, entry) in later.entries {
            self.change(id, |below| below.append(&entry));
        }
    }

    /// Puts these writes below those that are there.
    pub(crate) fn put_below(&mut self, earlier: Overlay) {
        for (id, mut entry) in earlier.entries {
            if let Some(later) = self.get(id) {
                entry.append(later);
            }
            self.insert(id, entry);
        }
    }

    /// Ids with entries, in order.
    pub(crate) fn ids(&self, range: RangeInclusive<u64>) -> impl Iterator<Item = u64> + '_ {
        self.entries.range(range).map(|(&id, _)| id)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.entries.len() * ENTRY_BYTES + self.heap_bytes + self.filter.memory_bytes()
    }
}

fn heap_bytes(entry: &Entry) -> usize {
    let bytes = match entry {
        Entry::Absolute(record) => record.heap_bytes(),
        Entry::Patch(patch) => patch.heap_bytes(),
    };
    if bytes == 0 { 0 } else { bytes + BLOCK_BYTES }
}

impl Entry {
    /// Adds to a field.
    pub(super) fn add(&mut self, number: u8, delta: i64) {
        match self {
            // It wraps for the reason that patches do.
            Entry::Absolute(record) => record.set(number, record.get(number).wrapping_add(delta)),
            Entry::Patch(patch) => patch.add(number, delta),
        }
    }

    /// Sets a field.
    pub(super) fn set(&mut self, number: u8, value: i64) {
        match self {
            Entry::Absolute(record) => record.set(number, value),
            Entry::Patch(patch) => patch.set(number, value),
        }
    }

    /// The record that this entry and the one below make.
    pub(super) fn over<'a, E>(
        &'a self,
        below: impl FnOnce() -> Result<Cow<'a, Record>, E>,
    ) -> Result<Cow<'a, Record>, E> {
        match self {
            Entry::Absolute(record) => Ok(Cow::Borrowed(record)),
            Entry::Patch(patch) => {
                let mut record = below()?;
                patch.apply(record.to_mut());
                Ok(record)
            }
        }
    }

    /// What both entries are together, this one being below the later one.
    pub(super) fn append(&mut self, later: &Entry) {
        match (&mut *self, later) {
            (_, Entry::Absolute(_)) => *self = later.clone(),
            (Entry::Absolute(record), Entry::Patch(patch)) => patch.apply(record),
            (Entry::Patch(below), Entry::Patch(patch)) => below.append(patch),
        }
    }
}

/// What overlays have for an id together; the latest is the first.
pub(crate) fn entry_of(layers: &[&Overlay], id: u64) -> Option<Entry> {
    let mut found: Option<Entry> = None;
    for entry in layers.iter().rev().filter_map(|layer| layer.get(id)) {
        match &mut found {
            Some(below) => below.append(entry),
            None => found = Some(entry.clone()),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w3_an_overlay_finds_each_entry_and_searches_for_few_ids_that_have_none() {
        let mut overlay = Overlay::default();
        assert!(overlay.get(7).is_none());
        // In no order, and twice.
        let id = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut most = 0;
        for number in 0..20_000 {
            match number % 2 {
                0 => overlay.insert(id(number), Entry::Absolute(Record::default())),
                _ => overlay.change(id(number), |entry| entry.add(1, 1)),
            }
            most = most.max(overlay.filter.memory_bytes());
            if number.is_multiple_of(97) || number < 300 {
                assert!((0..=number).all(|number| overlay.get(id(number)).is_some()), "after {number}");
            }
            overlay.change(id(number / 2), |entry| entry.add(0, 1));
        }
        assert!(most > 20_000 && most < 4 * 20_000, "{most} bytes");
        let searched = (0..20_000).filter(|number| overlay.filter.may_have(id(number + 20_000))).count();
        assert!(searched < 2_000, "{searched} of 20,000");
        // What was appended below or above is found, too.
        let mut below = Overlay::default();
        below.insert(5, Entry::Absolute(Record::default()));
        overlay.put_below(below.clone());
        assert!(overlay.get(5).is_some());
        below.append(overlay);
        assert!((0..20_000).all(|number| below.get(id(number)).is_some()));
    }
}
