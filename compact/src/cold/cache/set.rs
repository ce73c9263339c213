//! Records of a cache that share a part of the hash.

use super::super::FileId;
use crate::record::Record;

/// Bytes of the records that share a set. It bounds the work of a search, and a record that is larger is not kept.
pub(super) const SET_BYTES: usize = 2048;
/// Records of a set at most: as many as have a tag in the cache line of the set.
const ITEMS_MAX: usize = 38;
/// The maximum number of unused places in the list of a set.
pub(super) const SPARE_ITEMS: usize = 4;
/// Bytes by which the allocator rounds up a block, at most.
pub(super) const BLOCK_BYTES: usize = 8;

#[derive(Debug)]
pub(super) struct Item {
    pub(super) file: FileId,
    pub(super) id: u64,
    pub(super) record: Record,
}

impl Item {
    pub(super) fn bytes(&self) -> usize {
        size_of::<Item>() + self.heap_bytes()
    }

    fn heap_bytes(&self) -> usize {
        self.record.heap_bytes() + BLOCK_BYTES
    }
}

/// The items that a part of the hash leads to; the one that was used last is at the end. The set fills one cache line. For most ids, its
/// tags show that the record is not here, so a search need not read the lines of the items.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Set {
    pub(super) items: Vec<Item>,
    /// The bytes of the items.
    bytes: u16,
    /// A byte of each item's hash.
    pub(super) tags: [u8; ITEMS_MAX],
}

const _: () = assert!(size_of::<Set>() == 64 && SET_BYTES <= u16::MAX as usize);

impl Default for Set {
    fn default() -> Set {
        Set { items: Vec::new(), bytes: 0, tags: [0; ITEMS_MAX] }
    }
}

impl Set {
    pub(super) fn bytes(&self) -> usize {
        usize::from(self.bytes)
    }

    /// Memory of the set, except the struct itself.
    pub(super) fn taken_bytes(&self) -> usize {
        self.bytes() + (self.items.capacity() - self.items.len()) * size_of::<Item>()
    }

    pub(super) fn position(&self, file: FileId, id: u64, tag: u8) -> Option<usize> {
        let mut tagged = (0..self.items.len()).filter(|place| self.tags[*place] == tag);
        tagged.find(|place| self.items[*place].id == id && self.items[*place].file == file)
    }

    /// Adds an item at the end. There is room for it.
    pub(super) fn push(&mut self, item: Item, tag: u8) {
        self.bytes += item.bytes() as u16;
        self.tags[self.items.len()] = tag;
        if self.items.len() == self.items.capacity() {
            self.items.reserve_exact(SPARE_ITEMS);
        }
        self.items.push(item);
    }

    pub(super) fn remove(&mut self, place: usize) {
        self.tags[place..self.items.len()].rotate_left(1);
        self.bytes -= self.items.remove(place).bytes() as u16;
    }

    /// Forgets what was not used for the longest time, until there is room for so many bytes.
    pub(super) fn make_room(&mut self, bytes: usize) {
        let mut gone = 0;
        while self.bytes() + bytes > SET_BYTES || self.items.len() - gone == ITEMS_MAX {
            self.bytes -= self.items[gone].bytes() as u16;
            gone += 1;
        }
        if gone > 0 {
            self.tags[..self.items.len()].rotate_left(gone);
            self.items.drain(..gone);
        }
    }

    /// The item of a place becomes the one that was used last.
    pub(super) fn use_item(&mut self, place: usize) {
        self.tags[place..self.items.len()].rotate_left(1);
        self.items[place..].rotate_left(1);
    }

    /// Gives back the memory of items that have gone.
    pub(super) fn shrink(&mut self) {
        self.items.shrink_to(self.items.len() + SPARE_ITEMS);
    }
}

/// The byte by which a set finds an item. The place of the set depends on the other end of the hash.
pub(super) fn tag(hash: u64) -> u8 {
    (hash >> 56) as u8
}
