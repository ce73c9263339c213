//! The first table of a set begins without memory. Its ids wait in a dictionary until all of the table's memory is ready, and then take
//! slots. So no command touches a thousand pages of memory that were never used, and a small set needs no table.

use super::dictionary::Dictionary;
use super::waiting::Start;
use super::{Found, Table, apply, touch};
use crate::hash::Hash;
use crate::record::Record;

/// So many segments are used at once: a command can touch all their pages.
const SEGMENTS_AT_ONCE: usize = 2;
/// In this part of the slots ids wait before memory is made ready: a set that is smaller gets no table.
const WAITING_PART: u64 = 64;
/// New ids for which a segment is made ready.
const IDS_PER_SEGMENT: u64 = 768;
/// New ids for which some of those that wait get slots, and how many.
const IDS_PER_BATCH: u64 = 32;
const BATCH: usize = 16;

impl Table {
    /// The same table as the first one of a set. One of a few segments has them at once.
    pub(crate) fn without_memory(self) -> Table {
        let is_large = self.groups.segments_len() > SEGMENTS_AT_ONCE;
        Table { start: is_large.then(Box::default), ..self }
    }

    /// Whether ids wait, or will wait, for slots.
    pub(crate) fn is_starting(&self) -> bool {
        self.start.is_some()
    }

    /// The ids that wait for slots.
    pub(crate) fn waiting_ids(&self) -> Option<&Dictionary> {
        self.start.as_ref().map(|start| &start.ids)
    }

    /// The same, with their records.
    pub(crate) fn waiting_records(&self) -> impl Iterator<Item = (u64, &Record)> {
        self.waiting_ids().into_iter().flat_map(Dictionary::iter)
    }

    /// Finds an id that is in no slot and not in the extend dictionary.
    #[inline]
    pub(super) fn find_waiting(&self, id: u64, hash: Hash) -> Found {
        let is_waiting = self.start.as_ref().is_some_and(|start| start.ids.contains(id, hash));
        if is_waiting { Found::Waiting } else { Found::Absent }
    }

    /// The record of an id that waits.
    pub(super) fn waiting(&self, id: u64, hash: Hash) -> Option<&Record> {
        self.start.as_ref().and_then(|start| start.ids.get(id, hash))
    }

    /// Lets an absent id wait. `None`: the memory is ready.
    pub(super) fn wait(&mut self, id: u64, hash: Hash) -> Option<Found> {
        let start = self.start.as_mut().filter(|start| !start.is_ready)?;
        start.ids.insert(id, hash, Record::default());
        self.used += 1;
        Some(Found::Waiting)
    }

    /// Stores values of an id that waits. Returns whether its record is 0 now, and it has left.
    pub(super) fn store_waiting(&mut self, id: u64, hash: Hash, changes: &[(u8, i64)]) -> bool {
        let Some(start) = &mut self.start else { return false };
        let has_left = start.ids.change_or_remove(id, hash, |record| apply(record, changes));
        self.used -= u64::from(has_left);
        has_left
    }

    pub(super) fn start_bytes(&self) -> usize {
        self.start.as_ref().map_or(0, |start| size_of::<Start>() + start.ids.memory_bytes())
    }

    /// A new id comes: does its share of the start. `live`: the numbers of the live fields.
    #[inline]
    pub(crate) fn start_for_new_id(&mut self, live: &[u8]) {
        if self.start.is_some() {
            self.share(live);
        }
    }

    #[cold]
    fn share(&mut self, live: &[u8]) {
        let Some(start) = &mut self.start else { return };
        start.new_ids += 1;
        let every = if start.is_ready { IDS_PER_BATCH } else { IDS_PER_SEGMENT };
        if start.new_ids.is_multiple_of(every) {
            self.start_step(live);
        }
    }

    /// Makes a segment ready, or afterwards gives slots to some ids that wait. Returns whether there is more to do now.
    pub(crate) fn start_step(&mut self, live: &[u8]) -> bool {
        let slots = self.groups.geometry.slots();
        let Some(start) = &mut self.start else { return false };
        if start.is_ready {
            return self.seat(live);
        }
        // A conversion allocates other memory.
        if start.ids.len() as u64 <= slots / WAITING_PART || self.converting.is_some() {
            return false;
        }
        start.is_ready = !self.groups.preallocate();
        true
    }

    /// Gives slots to some ids that wait. Returns whether there were any.
    fn seat(&mut self, live: &[u8]) -> bool {
        let Some(start) = &mut self.start else { return false };
        let batch: Vec<(u64, Hash, Record)> = std::iter::from_fn(|| start.ids.pop()).take(BATCH).collect();
        if batch.is_empty() {
            self.start = None;
            return false;
        }
        touch(batch.iter().map(|(_, hash, _)| self.approach(*hash)));
        for (id, hash, record) in batch {
            self.used -= 1;
            let values: Vec<(u8, i64)> = record.numbered().filter(|(number, _)| live.contains(number)).collect();
            self.adopt(id, hash, &values);
        }
        true
    }
}
