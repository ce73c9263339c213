//! The slots of one layout: a tag byte each, 16 tags together, then the slots (key, record).

use super::geometry::{GROUP_SLOTS, Geometry, Packing};
use crate::layout::{Layout, PAD_BYTES};
use crate::record::Record;
use std::sync::Arc;

/// A slot in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) group: u32,
    index: u8,
}

/// The high bit of a tag: the record is in the aux dictionary.
const IN_AUX: u8 = 0x80;
/// Of a cache line, on the usual processors.
pub const LINE_BYTES: usize = 64;
/// Of a page of memory, on the usual systems.
const PAGE_BYTES: usize = 4_096;
const ONES: u128 = u128::from_ne_bytes([0x01; 16]);
const LOW: u128 = u128::from_ne_bytes([0x7f; 16]);
const HIGH: u128 = u128::from_ne_bytes([0x80; 16]);

/// The high bit of each byte that, without its own high bit, equals `tag`. Exact: no sum leaves its byte.
#[inline]
fn matches(tags: u128, tag: u8) -> u128 {
    let differs = (tags & LOW) ^ (ONES * u128::from(tag));
    !(differs + LOW) & HIGH
}

/// The high bit of each byte that is 0.
#[inline]
fn empties(tags: u128) -> u128 {
    !(((tags & LOW) + LOW) | tags) & HIGH
}

/// Whether one of 16 tags marks an empty slot.
#[inline]
pub(crate) fn has_empty(tags: u128) -> bool {
    empties(tags) != 0
}

#[inline]
fn first(marks: u128) -> usize {
    marks.trailing_zeros() as usize / 8
}

#[derive(Clone, Debug)]
pub(crate) struct Groups {
    pub(crate) geometry: Geometry,
    pub(crate) layout: Arc<Layout>,
    packing: Packing,
    /// None, until an id needs one. `None`: no id has needed it, so all its slots are empty.
    segments: Vec<Option<Box<[u8]>>>,
    allocated_bytes: usize,
}

/// Slots that move to another layout. Groups before `next_group` have moved. A group keeps its number, so a search needs no second try.
#[derive(Clone, Debug)]
pub(crate) struct Conversion {
    pub(crate) groups: Groups,
    pub(crate) next_group: u32,
}

impl Groups {
    pub(crate) fn new(geometry: Geometry, layout: Arc<Layout>) -> Groups {
        let packing = Packing::new(geometry, layout.bytes, PAD_BYTES);
        Groups { geometry, layout, packing, segments: Vec::new(), allocated_bytes: 0 }
    }

    /// The memory of a group and of those after it in its segment.
    #[inline]
    pub(crate) fn bytes(&self, group: u32) -> Option<&[u8]> {
        let (segment, at) = self.packing.place(group);
        self.segments.get(segment)?.as_deref().map(|bytes| &bytes[at..])
    }

    #[inline]
    fn bytes_mut(&mut self, group: u32) -> &mut [u8] {
        let (segment, at) = self.packing.place(group);
        if !self.is_allocated(segment) {
            self.allocate(segment);
        }
        &mut self.segments[segment].as_deref_mut().expect("it is allocated")[at..]
    }

    #[inline]
    fn is_allocated(&self, segment: usize) -> bool {
        self.segments.get(segment).is_some_and(Option::is_some)
    }

    #[cold]
    fn allocate(&mut self, segment: usize) {
        if self.segments.is_empty() {
            self.segments = vec![None; self.packing.segments];
        }
        let bytes = self.packing.segment_bytes(segment, PAD_BYTES);
        self.segments[segment] = Some(vec![0; bytes].into_boxed_slice());
        self.allocated_bytes += bytes;
    }

    /// Allocates a segment that no id has needed yet, and writes to each of its pages: a page costs most when it is first written to.
    pub(crate) fn preallocate(&mut self) -> bool {
        let missing = if self.segments.is_empty() { Some(0) } else { self.segments.iter().position(Option::is_none) };
        missing.inspect(|segment| self.make_ready(*segment)).is_some()
    }

    fn make_ready(&mut self, segment: usize) {
        self.allocate(segment);
        let pages = self.segments[segment].iter_mut().flat_map(|bytes| bytes.chunks_mut(PAGE_BYTES));
        pages.for_each(|page| page[0] = std::hint::black_box(0));
    }

    /// Makes the memory of a group ready, if it is not.
    pub(crate) fn preallocate_group(&mut self, group: u32) {
        let (segment, _) = self.packing.place(group);
        if !self.is_allocated(segment) {
            self.make_ready(segment);
        }
    }

    /// The segments of all slots.
    pub(crate) fn segments_len(&self) -> usize {
        self.packing.segments
    }

    /// Whether a share of all memory is allocated.
    pub(crate) fn has_allocated(&self, part: u64, whole: u64) -> bool {
        self.allocated_bytes as u64 * whole >= self.packing.bytes(PAD_BYTES) as u64 * part.min(whole)
    }

    /// The memory of a group; nothing, if no id has needed it.
    #[inline]
    pub(crate) fn memory(&self, group: u32) -> &[u8] {
        self.bytes(group).map_or(&[], |bytes| &bytes[..self.slot_at(GROUP_SLOTS)])
    }

    /// Reads a byte of each cache line of a group.
    #[inline]
    pub(crate) fn touch(&self, group: u32) {
        let lines = self.memory(group).iter().step_by(LINE_BYTES);
        std::hint::black_box(lines.fold(0, |all, byte| all ^ byte));
    }

    /// The memory of the first slot with this tag in a group, or else of the one that a new id gets, from the memory of that group.
    #[inline]
    pub(crate) fn slot_line<'a>(&self, group: &'a [u8], tag: u8) -> &'a [u8] {
        let tags = group.first_chunk().map(|tags| u128::from_le_bytes(*tags));
        let marks = tags.map_or(0, |tags| Some(matches(tags, tag)).filter(|same| *same != 0).unwrap_or(empties(tags)));
        if marks == 0 { &[] } else { group.get(self.slot_at(first(marks))..).unwrap_or_default() }
    }

    /// The tags of a group, the first slot's in the lowest byte.
    #[inline]
    pub(crate) fn tags(&self, group: u32) -> u128 {
        self.bytes(group).map_or(0, |bytes| u128::from_le_bytes(bytes[..GROUP_SLOTS].try_into().expect("sixteen tags")))
    }

    #[inline]
    fn slot_at(&self, index: usize) -> usize {
        GROUP_SLOTS + index * self.packing.slot_bytes
    }

    #[inline]
    fn key_at(&self, bytes: &[u8], index: usize) -> u64 {
        let at = self.slot_at(index);
        let word = u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        word & self.geometry.key_max
    }

    /// The slot of a key, and whether its record is in the aux dictionary.
    #[inline]
    pub(crate) fn find(&self, group: u32, tags: u128, tag: u8, key: u64) -> Option<(Slot, bool)> {
        let mut marks = matches(tags, tag);
        while marks != 0 {
            let index = first(marks);
            let bytes = self.bytes(group)?;
            if self.key_at(bytes, index) == key {
                return Some((Slot { group, index: index as u8 }, bytes[index] & IN_AUX != 0));
            }
            marks &= marks - 1;
        }
        None
    }

    /// Takes the first empty slot of a group.
    pub(crate) fn take_empty(&mut self, group: u32, tag: u8, key: u64) -> Option<Slot> {
        let marks = empties(self.tags(group));
        if marks == 0 {
            return None;
        }
        let index = first(marks);
        let (at, key_bytes) = (self.slot_at(index), self.geometry.key_bytes);
        let bytes = self.bytes_mut(group);
        bytes[index] = tag;
        bytes[at..at + key_bytes].copy_from_slice(&key.to_le_bytes()[..key_bytes]);
        Some(Slot { group, index: index as u8 })
    }

    #[inline]
    fn record_at(&self, slot: Slot) -> usize {
        self.slot_at(usize::from(slot.index)) + self.geometry.key_bytes
    }

    #[inline]
    pub(crate) fn value(&self, slot: Slot, number: u8) -> i64 {
        let bytes = self.bytes(slot.group).expect("a slot in use");
        self.layout.place(number).map_or(0, |place| place.read(&bytes[self.record_at(slot)..]))
    }

    #[inline]
    pub(crate) fn append_values(&self, slot: Slot, numbers: &[u8], out: &mut Vec<i64>) {
        let bytes = &self.bytes(slot.group).expect("a slot in use")[self.record_at(slot)..];
        out.extend(numbers.iter().map(|number| self.layout.place(*number).map_or(0, |place| place.read(bytes))));
    }

    pub(crate) fn record(&self, slot: Slot) -> Record {
        let bytes = &self.bytes(slot.group).expect("a slot in use")[self.record_at(slot)..];
        let values = self.layout.places().iter().map(|place| place.map_or(0, |place| place.read(bytes)));
        Record::new(values.collect())
    }

    /// Stores values in a slot. Returns `false`, and changes nothing, if one does not fit.
    #[inline]
    pub(crate) fn store(&mut self, slot: Slot, changes: &[(u8, i64)]) -> bool {
        let fits = |(number, value): &(u8, i64)| match self.layout.place(*number) {
            Some(place) => place.fits(*value),
            None => *value == 0,
        };
        if !changes.iter().all(fits) {
            return false;
        }
        let at = self.record_at(slot);
        let (segment, begin) = self.packing.place(slot.group);
        let bytes = &mut self.segments[segment].as_deref_mut().expect("a slot in use")[begin + at..];
        for (number, value) in changes {
            if let Some(place) = self.layout.place(*number) {
                place.write(bytes, *value);
            }
        }
        true
    }

    /// Marks a slot whose record is now in the aux dictionary.
    pub(crate) fn move_out(&mut self, slot: Slot) {
        self.bytes_mut(slot.group)[usize::from(slot.index)] |= IN_AUX;
    }

    /// Whether all of a record has room in a slot.
    pub(crate) fn fits(&self, record: &Record) -> bool {
        (0..=u8::MAX).zip(record.values()).all(|(number, value)| match self.layout.place(number) {
            Some(place) => place.fits(*value),
            None => *value == 0,
        })
    }

    /// Stores a whole record that fits. Fields that it does not name become 0.
    pub(crate) fn move_in(&mut self, slot: Slot, record: &Record) {
        let layout = self.layout.clone();
        let at = self.record_at(slot);
        let bytes = self.bytes_mut(slot.group);
        bytes[usize::from(slot.index)] &= !IN_AUX;
        for (number, place) in (0..=u8::MAX).zip(layout.places()) {
            if let Some(place) = place {
                place.write(&mut bytes[at..], record.get(number));
            }
        }
    }

    pub(crate) fn record_bytes(&self, slot: Slot) -> &[u8] {
        let at = self.record_at(slot);
        &self.bytes(slot.group).expect("a slot in use")[at..at + self.layout.bytes]
    }

    /// Whether all values of a slot are 0.
    pub(crate) fn is_zero(&self, slot: Slot) -> bool {
        self.record_bytes(slot).iter().all(|byte| *byte == 0)
    }

    pub(crate) fn set_record_bytes(&mut self, slot: Slot, record: &[u8]) {
        let at = self.record_at(slot);
        self.bytes_mut(slot.group)[at..at + record.len()].copy_from_slice(record);
    }

    /// The slots of a group that are in use: slot, key, and whether the record is in the aux dictionary.
    pub(crate) fn slots(&self, group: u32) -> impl Iterator<Item = (Slot, u64, bool)> + '_ {
        let bytes = self.bytes(group).unwrap_or_default();
        let used = bytes.iter().take(GROUP_SLOTS).enumerate().filter(|(_, tag)| **tag != 0);
        used.map(move |(index, tag)| {
            (Slot { group, index: index as u8 }, self.key_at(bytes, index), *tag & IN_AUX != 0)
        })
    }

    /// Frees the last segment that is allocated.
    pub(crate) fn free_segment(&mut self) -> bool {
        while let Some(segment) = self.segments.pop() {
            if let Some(bytes) = segment {
                self.allocated_bytes -= bytes.len();
                return true;
            }
        }
        false
    }

    /// Frees the segment before a group, if the group begins one.
    pub(crate) fn free_before(&mut self, group: u32) {
        let (segment, at) = self.packing.place(group.min(self.geometry.groups - 1));
        let done = if group >= self.geometry.groups { segment + 1 } else { segment };
        let ends_one = (at == 0 || group >= self.geometry.groups) && done > 0;
        let freed = self.segments.get_mut(done.wrapping_sub(1)).filter(|_| ends_one);
        if let Some(bytes) = freed.and_then(Option::take) {
            self.allocated_bytes -= bytes.len();
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.allocated_bytes + self.segments.len() * size_of::<Option<Box<[u8]>>>()
    }

    pub(crate) fn segments_mut(&mut self) -> impl Iterator<Item = &mut Box<[u8]>> {
        self.segments.iter_mut().flatten()
    }
}
