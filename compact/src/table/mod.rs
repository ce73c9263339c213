//! One table: slots for the ids of a range, found by double hashing over groups (W2), and its two dictionaries.
//!
//! Slots are never emptied: a record of zeros equals a missing one. So a search ends at the first group with an empty slot, and an
//! id that is not in a slot can be in the extend dictionary only if all groups of its search are full.

mod approach;
mod convert;
mod dictionary;
mod far;
mod geometry;
mod groups;
mod start;
mod waiting;

pub(crate) use approach::{Approach, touch, touch_lines};
pub(crate) use dictionary::Dictionary;
pub(crate) use geometry::{Geometry, SEGMENT_BYTES};
pub use groups::LINE_BYTES;

use crate::hash::Hash;
use crate::layout::Layout;
use crate::record::Record;
use groups::{Conversion, Groups, Slot};
use std::sync::Arc;
use waiting::{Far, Start};

/// Where the record of an id is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// In a slot.
    Slot(Slot),
    /// In the aux dictionary; the slot has the key.
    Aux(Slot),
    /// In the extend dictionary.
    Extend,
    /// Among the strays.
    Far,
    /// In the dictionary of ids that wait for the first memory of the table.
    Waiting,
    /// Nowhere: all its values are 0.
    Absent,
}

#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// Keys in slots are distances from this id.
    pub(crate) origin: u64,
    groups: Groups,
    /// The groups of a newer layout, while records move to them.
    converting: Option<Conversion>,
    pub(crate) aux: Dictionary,
    pub(crate) extend: Dictionary,
    /// The strays of the last table of a set by ranges.
    far: Option<Box<Far>>,
    /// Slots in use, also those of records of zeros; and ids that wait for a slot.
    pub(crate) used: u64,
    /// Of these slots, those whose ids have moved to the next table: their records are 0.
    pub(crate) vacated: u64,
    probe_max: u32,
    /// The first table of a set has no memory at first.
    start: Option<Box<Start>>,
}

impl Table {
    pub(crate) fn new(origin: u64, geometry: Geometry, layout: Arc<Layout>, probe_max: u32) -> Table {
        let groups = Groups::new(geometry, layout);
        let (aux, extend) = (Dictionary::default(), Dictionary::default());
        Table { origin, groups, converting: None, aux, extend, far: None, used: 0, vacated: 0, probe_max, start: None }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.groups.geometry
    }

    /// Groups that a search examines. It stays as it was when the table was made: a search must end where each earlier one ended.
    pub(crate) fn probe_max(&self) -> u32 {
        self.probe_max
    }

    /// The key of an id in a slot; `None`: the distance from the origin has no room in it.
    #[inline]
    fn key(&self, id: u64) -> Option<u64> {
        let key = id.wrapping_sub(self.origin);
        (id >= self.origin && key <= self.groups.geometry.key_max).then_some(key)
    }

    /// Whether an id can have a slot.
    pub(crate) fn reaches(&self, id: u64) -> bool {
        self.key(id).is_some()
    }

    #[inline]
    fn side(&self, group: u32) -> &Groups {
        match &self.converting {
            Some(conversion) if group < conversion.next_group => &conversion.groups,
            _ => &self.groups,
        }
    }

    #[inline]
    fn side_mut(&mut self, group: u32) -> &mut Groups {
        match &mut self.converting {
            Some(conversion) if group < conversion.next_group => &mut conversion.groups,
            _ => &mut self.groups,
        }
    }

    /// The memory of a group, which begins with its tags. Empty if no id has needed it.
    #[inline]
    fn group_line(&self, group: u32) -> &[u8] {
        self.side(group).bytes(group).unwrap_or_default()
    }

    /// Finds an id (W2: `h1 + N * h2`).
    #[inline]
    pub(crate) fn find(&self, id: u64, hash: Hash) -> Found {
        if self.is_far(id, hash) {
            return Found::Far;
        }
        if let Some(key) = self.key(id) {
            let (count, tag) = (self.groups.geometry.groups, hash.tag());
            let mut group = hash.first_group(count);
            for probe in 0..self.probe_max {
                let side = self.side(group);
                let tags = side.tags(group);
                if let Some((slot, is_aux)) = side.find(group, tags, tag, key) {
                    return if is_aux { Found::Aux(slot) } else { Found::Slot(slot) };
                }
                if groups::has_empty(tags) {
                    return self.find_waiting(id, hash);
                }
                if probe == 0 && count == 1 {
                    break;
                }
                group += hash.group_step(count);
                group -= if group >= count { count } else { 0 };
            }
        }
        if self.extend.contains(id, hash) { Found::Extend } else { self.find_waiting(id, hash) }
    }

    /// The value of a field of an id that was found.
    #[inline]
    pub(crate) fn value(&self, id: u64, hash: Hash, found: Found, number: u8) -> i64 {
        match found {
            Found::Slot(slot) => self.side(slot.group).value(slot, number),
            Found::Aux(_) => self.aux.get(id, hash).map_or(0, |record| record.get(number)),
            Found::Extend => self.extend.get(id, hash).map_or(0, |record| record.get(number)),
            Found::Far => self.far_record(id, hash).map_or(0, |record| record.get(number)),
            Found::Waiting => self.waiting(id, hash).map_or(0, |record| record.get(number)),
            Found::Absent => 0,
        }
    }

    /// Appends the values of these fields of an id that was found.
    #[inline]
    pub(crate) fn append_values(&self, id: u64, hash: Hash, found: Found, numbers: &[u8], out: &mut Vec<i64>) {
        match found {
            Found::Slot(slot) => self.side(slot.group).append_values(slot, numbers, out),
            Found::Absent => out.extend(numbers.iter().map(|_| 0)),
            Found::Waiting => {
                let record = self.waiting(id, hash);
                out.extend(numbers.iter().map(|number| record.map_or(0, |record| record.get(*number))));
            }
            _ => out.extend(numbers.iter().map(|number| self.value(id, hash, found, *number))),
        }
    }

    /// The whole record of an id that was found.
    pub(crate) fn record(&self, id: u64, hash: Hash, found: Found) -> Record {
        match found {
            Found::Slot(slot) => self.side(slot.group).record(slot),
            Found::Aux(_) => self.aux.get(id, hash).cloned().unwrap_or_default(),
            Found::Extend => self.extend.get(id, hash).cloned().unwrap_or_default(),
            Found::Far => self.far_record(id, hash).cloned().unwrap_or_default(),
            Found::Waiting => self.waiting(id, hash).cloned().unwrap_or_default(),
            Found::Absent => Record::default(),
        }
    }

    /// Whether all values of an id that was found are 0.
    pub(crate) fn is_zero(&self, id: u64, hash: Hash, found: Found) -> bool {
        match found {
            Found::Slot(slot) => self.side(slot.group).is_zero(slot),
            Found::Absent => true,
            _ => self.record(id, hash, found).is_zero(),
        }
    }

    /// Takes the first empty slot of the search for an id that is absent, or lets the id wait for the first memory of the table. `None`:
    /// the search passes `probe_max`, or the key has no room.
    pub(crate) fn insert(&mut self, id: u64, hash: Hash) -> Option<Found> {
        let key = self.key(id)?;
        if self.start.is_some()
            && let Some(found) = self.wait(id, hash)
        {
            return Some(found);
        }
        let count = self.groups.geometry.groups;
        let mut group = hash.first_group(count);
        for _ in 0..self.probe_max {
            if let Some(slot) = self.side_mut(group).take_empty(group, hash.tag(), key) {
                self.used += 1;
                return Some(Found::Slot(slot));
            }
            group += hash.group_step(count);
            group -= if group >= count { count } else { 0 };
        }
        None
    }

    /// Gives an absent id a slot while the search finds one, else an entry of the extend dictionary.
    pub(crate) fn make_room(&mut self, id: u64, hash: Hash) -> Found {
        self.insert(id, hash).unwrap_or_else(|| self.insert_extend(id, hash))
    }

    /// Takes the record of an absent id: its values that the schema has.
    pub(crate) fn adopt(&mut self, id: u64, hash: Hash, values: &[(u8, i64)]) -> Found {
        let found = self.make_room(id, hash);
        self.store(id, hash, found, values);
        found
    }

    /// Puts an absent id into the extend dictionary.
    pub(crate) fn insert_extend(&mut self, id: u64, hash: Hash) -> Found {
        self.extend.insert(id, hash, Record::default());
        Found::Extend
    }

    /// Stores values of an id that is not absent. A record that does not fit its slot moves to the aux dictionary; one that fits
    /// again moves back. Returns whether the id has no place any more: only slots keep records of zeros.
    #[inline]
    pub(crate) fn store(&mut self, id: u64, hash: Hash, found: Found, changes: &[(u8, i64)]) -> bool {
        if let Found::Slot(slot) = found
            && self.side_mut(slot.group).store(slot, changes)
        {
            return false;
        }
        self.store_elsewhere(id, hash, found, changes)
    }

    /// The same of an id whose record is in a dictionary, before or afterwards.
    fn store_elsewhere(&mut self, id: u64, hash: Hash, found: Found, changes: &[(u8, i64)]) -> bool {
        match found {
            Found::Slot(slot) => {
                let side = self.side_mut(slot.group);
                let mut record = side.record(slot);
                side.move_out(slot);
                apply(&mut record, changes);
                self.aux.insert(id, hash, record);
            }
            Found::Aux(slot) => {
                self.aux.change(id, hash, |record| apply(record, changes));
                let fits = |record: &&Record| self.side(slot.group).fits(record);
                if let Some(record) = self.aux.get(id, hash).filter(fits).cloned() {
                    self.side_mut(slot.group).move_in(slot, &record);
                    self.aux.remove(id, hash);
                }
            }
            Found::Extend => return self.extend.change_or_remove(id, hash, |record| apply(record, changes)),
            Found::Far => return self.store_far(id, hash, changes),
            Found::Waiting => return self.store_waiting(id, hash, changes),
            Found::Absent => debug_assert!(false, "id {id} has no place"),
        }
        false
    }

    /// The record of an id, which becomes 0 here.
    pub(crate) fn take(&mut self, id: u64, hash: Hash) -> Record {
        let found = self.find(id, hash);
        let record = self.record(id, hash, found);
        if found != Found::Absent {
            let zeros: Vec<(u8, i64)> = record.numbered().map(|(number, _)| (number, 0)).collect();
            self.store(id, hash, found, &zeros);
        }
        // Slots after it may have been found past this one: it stays in use.
        self.vacated += u64::from(matches!(found, Found::Slot(_) | Found::Aux(_)));
        record
    }

    /// Bytes of slots and dictionaries.
    pub(crate) fn memory_bytes(&self) -> usize {
        let converting = self.converting.as_ref().map_or(0, |conversion| conversion.groups.memory_bytes());
        self.groups.memory_bytes()
            + converting
            + self.aux.memory_bytes()
            + self.extend.memory_bytes()
            + self.far_bytes()
            + self.start_bytes()
    }

    /// Calls `each` with the records of some groups from `begin` on, those of the aux dictionary included.
    pub(crate) fn for_each_in_group(&self, group: u32, seed: u64, mut each: impl FnMut(u64, Record)) {
        let side = self.side(group);
        for (slot, key, is_aux) in side.slots(group) {
            let id = self.origin + key;
            let found = if is_aux { Found::Aux(slot) } else { Found::Slot(slot) };
            // Where ids were deleted, most slots are of zeros. To decode a record takes a while for each field.
            if !is_aux && side.is_zero(slot) {
                continue;
            }
            let record = self.record(id, Hash::of(id, seed), found);
            if !record.is_zero() {
                each(id, record);
            }
        }
    }

    /// The layout that the slots of a group have.
    pub(crate) fn layout_of(&self, group: u32) -> &Arc<Layout> {
        &self.side(group).layout
    }

    /// The records of a group's slots as bytes, those of zeros excepted; `None`: the record is in the aux dictionary.
    pub(crate) fn slot_records(&self, group: u32) -> impl Iterator<Item = (u64, Option<&[u8]>)> {
        let side = self.side(group);
        let records = side.slots(group).filter(|(slot, _, is_aux)| *is_aux || !side.is_zero(*slot));
        records.map(|(slot, key, is_aux)| (self.origin + key, (!is_aux).then(|| side.record_bytes(slot))))
    }

    /// Whether all slots have this layout.
    pub(crate) fn has_layout(&self, layout: &Arc<Layout>) -> bool {
        self.converting.is_none()
            && self.start.is_none()
            && (Arc::ptr_eq(&self.groups.layout, layout) || self.groups.layout == *layout)
    }

    /// Puts an absent id into a slot, with a record as bytes of the table's layout ([`Table::has_layout`]). Returns where; `None`, and
    /// changes nothing, if it finds no slot.
    pub(crate) fn insert_bytes(&mut self, id: u64, hash: Hash, record: &[u8]) -> Option<Found> {
        let found @ Found::Slot(slot) = self.insert(id, hash)? else { return None };
        self.groups.set_record_bytes(slot, record);
        Some(found)
    }

    /// The records of a group have moved elsewhere: forgets how many they are, and those that were in the aux dictionary.
    pub(crate) fn leave_group(&mut self, group: u32, seed: u64) {
        let side = self.side(group);
        let (used, in_aux) = (side.slots(group).count() as u64, side.slots(group).filter(|(_, _, is_aux)| *is_aux));
        let in_aux: Vec<u64> = in_aux.map(|(_, key, _)| key).collect();
        self.used -= used;
        for key in in_aux {
            let id = self.origin + key;
            self.aux.remove(id, Hash::of(id, seed));
        }
    }

    /// Makes the memory of a segment ready that no id has needed yet. Returns whether there was one.
    pub(crate) fn preallocate(&mut self) -> bool {
        self.converting.is_none() && self.groups.preallocate()
    }

    /// Whether this share of the memory of all slots is there. A conversion allocates as it moves groups.
    pub(crate) fn has_allocated(&self, part: u64, whole: u64) -> bool {
        self.converting.is_some() || self.groups.has_allocated(part, whole)
    }

    /// Frees a segment of a table that is no longer used. Returns whether there was one.
    pub(crate) fn free_segment(&mut self) -> bool {
        self.groups.free_segment()
    }

    /// The memory of segments, for the host's defragmentation.
    pub(crate) fn segments_mut(&mut self) -> impl Iterator<Item = &mut Box<[u8]>> {
        let converting = self.converting.as_mut().map(|conversion| conversion.groups.segments_mut());
        self.groups.segments_mut().chain(converting.into_iter().flatten())
    }
}

fn apply(record: &mut Record, changes: &[(u8, i64)]) {
    for (number, value) in changes {
        record.set(*number, *value);
    }
}
