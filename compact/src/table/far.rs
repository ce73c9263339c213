//! The ids of a table that are out of reach, or far above all others: strays of a range of rising ids (W2).

use super::dictionary::Dictionary;
use super::{Found, Table};
use crate::hash::Hash;
use crate::record::Record;

/// Whole records of ids that have no slot. They move to the next table all at once, however many they are.
#[derive(Clone, Debug)]
pub(crate) struct Far {
    pub(super) ids: Dictionary,
    /// No id is below this one: most searches skip the dictionary.
    from: u64,
}

impl Default for Far {
    fn default() -> Far {
        Far { ids: Dictionary::default(), from: u64::MAX }
    }
}

impl Far {
    #[inline]
    pub(super) fn contains(&self, id: u64, hash: Hash) -> bool {
        id >= self.from && self.ids.contains(id, hash)
    }
}

impl Table {
    /// The strays, with their records.
    pub(crate) fn far_ids(&self) -> &Dictionary {
        &self.far.ids
    }

    /// Ids in the dictionaries of those without a slot.
    pub(crate) fn extend_len(&self) -> usize {
        self.extend.len() + self.far.ids.len()
    }

    /// The records of all ids without a slot, those that wait for one included.
    pub(crate) fn slotless(&self) -> impl Iterator<Item = (u64, &Record)> {
        self.extend.iter().chain(self.far.ids.iter()).chain(self.waiting_records())
    }

    /// Puts an absent id among the strays.
    pub(crate) fn insert_far(&mut self, id: u64, hash: Hash) -> Found {
        self.far.from = self.far.from.min(id);
        self.far.ids.insert(id, hash, Record::default());
        Found::Far
    }

    /// Takes a stray out. `None`: its record has become 0.
    pub(crate) fn take_far(&mut self, id: u64, hash: Hash) -> Option<Record> {
        self.far.ids.remove(id, hash)
    }

    /// Takes all strays of another table, in a time that does not depend on their number.
    pub(crate) fn take_all_far(&mut self, other: &mut Table) {
        self.far = std::mem::take(&mut other.far);
    }
}
