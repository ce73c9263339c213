//! The entries of a part, in the order in which they came.

use crate::hash::Hash;
use crate::record::Record;

/// An id, its hash, its record.
pub(super) type Entry = (u64, Hash, Record);

/// Entries of a chunk.
pub(super) const CHUNK: usize = 4_096;

/// A vector in chunks: one that is full stays where it is, so that no growth moves more entries than one chunk has.
#[derive(Clone, Debug, Default)]
pub(super) struct Entries(Vec<Vec<Entry>>);

impl Entries {
    pub(super) fn len(&self) -> usize {
        self.0.last().map_or(0, |last| (self.0.len() - 1) * CHUNK + last.len())
    }

    #[inline]
    pub(super) fn get(&self, place: u32) -> &Entry {
        &self.0[place as usize / CHUNK][place as usize % CHUNK]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, place: u32) -> &mut Entry {
        &mut self.0[place as usize / CHUNK][place as usize % CHUNK]
    }

    pub(super) fn push(&mut self, entry: Entry) {
        match self.0.last_mut() {
            Some(last) if last.len() < CHUNK => last.push(entry),
            _ => self.0.push(vec![entry]),
        }
    }

    pub(super) fn pop(&mut self) -> Option<Entry> {
        let last = self.0.last_mut()?;
        let entry = last.pop();
        if last.is_empty() {
            self.0.pop();
        }
        entry
    }

    pub(super) fn swap(&mut self, a: u32, b: u32) {
        let held = std::mem::replace(self.get_mut(a), (0, Hash::first(), Record::default()));
        let other = std::mem::replace(self.get_mut(b), held);
        *self.get_mut(a) = other;
    }

    /// The entries from a place on.
    pub(super) fn iter_from(&self, place: usize) -> impl Iterator<Item = &Entry> {
        let mut chunks = self.0.get(place / CHUNK..).unwrap_or_default().iter();
        let first = chunks.next().and_then(|first| first.get(place % CHUNK..)).unwrap_or_default();
        first.iter().chain(chunks.flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w1_entries_stay_where_they_are() {
        let mut entries = Entries::default();
        let mut push = |count: usize| {
            (0..count).for_each(|id| entries.push((id as u64, Hash::first(), Record::default())));
            std::ptr::from_ref(entries.get(0))
        };
        let first = push(CHUNK);
        assert_eq!(push(64 * CHUNK + 1), first);
        let (count, from) = (65 * CHUNK + 1, 3 * CHUNK + 5);
        assert_eq!((entries.len(), entries.iter_from(from).count()), (count, count - from));
        assert_eq!(entries.iter_from(from).next().map(|entry| entry.0), Some(entries.get(from as u32).0));
        while entries.pop().is_some() {}
        assert_eq!((entries.len(), entries.0.len()), (0, 0));
    }
}
