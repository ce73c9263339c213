//! The ids of a table that are out of reach, or far above all others: strays of a range of rising ids (W2).

use super::dictionary::Dictionary;
use super::waiting::Far;
use super::{Found, Table, apply};
use crate::hash::Hash;
use crate::record::Record;

impl Table {
    /// Whether an id is among the strays.
    #[inline]
    pub(super) fn is_far(&self, id: u64, hash: Hash) -> bool {
        self.far.as_ref().is_some_and(|far| id >= far.from && far.ids.contains(id, hash))
    }

    /// Searches for strays of which only the memory matters: with nothing between them, their cache misses overlap.
    pub(crate) fn touch_far(&self, ids: impl Iterator<Item = (u64, Hash)>) {
        if let Some(far) = &self.far {
            let found = ids.filter(|(id, hash)| *id >= far.from && far.ids.contains(*id, *hash));
            std::hint::black_box(found.count());
        }
    }

    /// The strays, with their records; `None`: there were none.
    pub(crate) fn far_ids(&self) -> Option<&Dictionary> {
        self.far.as_ref().map(|far| &far.ids)
    }

    /// Ids in the dictionaries of those without a slot.
    pub(crate) fn extend_len(&self) -> usize {
        self.extend.len() + self.far_ids().map_or(0, Dictionary::len)
    }

    /// The records of all ids without a slot, those that wait for one included.
    pub(crate) fn slotless(&self) -> impl Iterator<Item = (u64, &Record)> {
        let far = self.far_ids().into_iter().flat_map(Dictionary::iter);
        self.extend.iter().chain(far).chain(self.waiting_records())
    }

    /// Puts an absent id among the strays.
    pub(crate) fn insert_far(&mut self, id: u64, hash: Hash) -> Found {
        let far = self.far.get_or_insert_with(|| Box::new(Far { ids: Dictionary::default(), from: u64::MAX }));
        far.from = far.from.min(id);
        far.ids.insert(id, hash, Record::default());
        Found::Far
    }

    /// The record of a stray.
    pub(super) fn far_record(&self, id: u64, hash: Hash) -> Option<&Record> {
        self.far_ids()?.get(id, hash)
    }

    /// Stores values of a stray. Returns whether its record is 0 now, and it has left.
    pub(super) fn store_far(&mut self, id: u64, hash: Hash, changes: &[(u8, i64)]) -> bool {
        self.far.as_mut().is_some_and(|far| far.ids.change_or_remove(id, hash, |record| apply(record, changes)))
    }

    pub(crate) fn far_bytes(&self) -> usize {
        self.far.as_ref().map_or(0, |far| size_of::<Far>() + far.ids.memory_bytes())
    }

    /// Takes a stray out. `None`: it is none.
    pub(crate) fn take_far(&mut self, id: u64, hash: Hash) -> Option<Record> {
        self.far.as_mut()?.ids.remove(id, hash)
    }

    /// The lowest stray is this one now; `None`: there is none. Searches below it skip the strays again.
    pub(crate) fn far_begins(&mut self, lowest: Option<u64>) {
        if let Some(far) = &mut self.far {
            far.from = lowest.unwrap_or(u64::MAX);
        }
    }

    /// Takes all strays of another table, in a time that does not depend on their number.
    pub(crate) fn take_all_far(&mut self, other: &mut Table) {
        self.far = other.far.take();
    }
}

#[cfg(test)]
impl Table {
    /// The id from which on a search visits the strays.
    pub(crate) fn far_from(&self) -> Option<u64> {
        self.far.as_ref().map(|far| far.from)
    }
}
