//! The records of cold tables that were read last.

use super::FileId;
use crate::IDS_MAX;
use crate::hash::Hash;
use crate::record::Record;

/// Bytes of the records that share a set. It bounds the work of a search, and a record that is larger is not kept.
const SET_BYTES: usize = 2048;
/// Items that a set has room for beyond those it has, at most.
const SPARE_ITEMS: usize = 4;
/// Memory of a set without items.
const EMPTY_BYTES: usize = size_of::<Set>() + SPARE_ITEMS * size_of::<Item>();
/// What the allocator rounds a block up by.
const BLOCK_BYTES: usize = 8;
/// Sets that one step gives back.
const STEP_SETS: usize = 256;

#[derive(Debug)]
struct Item {
    file: FileId,
    id: u64,
    record: Record,
}

impl Item {
    fn bytes(&self) -> usize {
        size_of::<Item>() + self.record.heap_bytes() + BLOCK_BYTES
    }
}

/// The items that a part of the hash leads to; the one that was used last is at the end.
#[derive(Debug, Default)]
struct Set {
    items: Vec<Item>,
}

/// Records by file and id, in a bounded number of bytes. The hash leads to a small set, in which the record that was not used for the
/// longest time goes first. So no step depends on the size of the cache, and nothing ever moves as a whole. Records of a file that
/// was replaced are not requested again, and go first in time.
#[derive(Debug, Default)]
pub(crate) struct RecordCache {
    sets: Vec<Set>,
    set_count: usize,
    bytes: usize,
    /// Sets of an earlier capacity, to be given back in steps.
    old: Vec<Set>,
    old_bytes: usize,
    /// Records that the next command remembers.
    kept: Vec<(FileId, u64, Record)>,
    hits: u64,
    misses: u64,
}

impl RecordCache {
    /// A cache of this many bytes. It takes no memory before the first record.
    pub(crate) fn new(capacity: usize) -> RecordCache {
        RecordCache { set_count: capacity / (SET_BYTES + EMPTY_BYTES), ..RecordCache::default() }
    }

    /// Changes the capacity. The records are forgotten, their memory is given back by [`RecordCache::step`].
    pub(crate) fn set_capacity(&mut self, capacity: usize) {
        let next = RecordCache::new(capacity);
        if next.set_count != self.set_count {
            let before = std::mem::replace(self, next);
            (self.hits, self.misses) = (before.hits, before.misses);
            self.old = before.old;
            self.old.extend(before.sets);
            self.old_bytes = before.old_bytes + before.bytes;
        }
    }

    /// Gives a bounded amount of memory back. Returns whether there is more.
    pub(crate) fn step(&mut self) -> bool {
        self.old.truncate(self.old.len().saturating_sub(STEP_SETS));
        if self.old.is_empty() {
            (self.old, self.old_bytes) = (Vec::new(), 0);
        }
        !self.old.is_empty()
    }

    /// The record of an id, if it is known.
    pub(crate) fn peek(&self, file: FileId, id: u64) -> Option<&Record> {
        let set = self.sets.get(self.set_of(file, id))?;
        set.items.iter().find(|item| item.id == id && item.file == file).map(|item| &item.record)
    }

    /// The record of an id, if it is known. It is now the last that its set forgets.
    pub(crate) fn get(&mut self, file: FileId, id: u64) -> Option<&Record> {
        let place = self.set_of(file, id);
        let items = &mut self.sets.get_mut(place)?.items;
        let found = items.iter().position(|item| item.id == id && item.file == file)?;
        items[found..].rotate_left(1);
        self.hits += 1;
        items.last().map(|item| &item.record)
    }

    /// Remembers a record later, at [`RecordCache::settle`]: until then, a command may rely on what the cache had when it began.
    /// Of very many, some are not remembered: their pages are read again.
    pub(crate) fn keep(&mut self, file: FileId, id: u64, record: Record) {
        self.misses += 1;
        if self.kept.len() < IDS_MAX {
            self.kept.push((file, id, record));
        }
    }

    /// Records that were found, and records that had to be read from a page. A command that waits for a page counts once: it looks
    /// for its record again when it has the page.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.hits, self.misses)
    }

    pub(crate) fn set_counts(&mut self, (hits, misses): (u64, u64)) {
        (self.hits, self.misses) = (hits, misses);
    }

    /// Remembers the records of the commands before.
    pub(crate) fn settle(&mut self) {
        for (file, id, record) in std::mem::take(&mut self.kept) {
            self.insert(file, id, record);
        }
    }

    /// Remembers a record.
    pub(crate) fn insert(&mut self, file: FileId, id: u64, record: Record) {
        let item = Item { file, id, record };
        if self.set_count == 0 || item.bytes() > SET_BYTES {
            return;
        }
        if self.sets.is_empty() {
            self.sets.resize_with(self.set_count, Set::default);
        }
        let place = self.set_of(file, id);
        let items = &mut self.sets[place].items;
        if let Some(found) = items.iter().position(|item| item.id == id && item.file == file) {
            self.bytes -= items.remove(found).bytes();
        }
        let mut used = items.iter().map(Item::bytes).sum::<usize>() + item.bytes();
        self.bytes += item.bytes();
        let mut gone = 0;
        while used > SET_BYTES {
            used -= items[gone].bytes();
            self.bytes -= items[gone].bytes();
            gone += 1;
        }
        items.drain(..gone);
        items.shrink_to(items.len() + 1 + SPARE_ITEMS);
        if items.len() == items.capacity() {
            items.reserve_exact(SPARE_ITEMS);
        }
        items.push(item);
    }

    /// Memory that the cache takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        (self.sets.capacity() + self.old.capacity()) * EMPTY_BYTES + self.bytes + self.old_bytes
    }

    fn set_of(&self, file: FileId, id: u64) -> usize {
        let hash = Hash::of(id, file.0).bits();
        ((u128::from(hash) * self.sets.len() as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w3_the_cache_keeps_what_is_used_within_its_bytes() {
        let mut cache = RecordCache::new(256 << 10);
        assert_eq!((cache.memory_bytes(), cache.peek(FileId(1), 1)), (0, None));
        let record = |id: u64| Record::new(vec![id as i64, 1, 2, 3]);
        for id in 0..100_000 {
            cache.insert(FileId(id % 3), id, record(id));
            assert_eq!(cache.get(FileId(0), 0), Some(&record(0)), "used all the time, after {id}");
            assert_eq!(cache.peek(FileId(id % 3), id), Some(&record(id)));
        }
        assert!(cache.memory_bytes() <= 256 << 10 && cache.memory_bytes() > 200 << 10, "{}", cache.memory_bytes());
        let kept = (0..100_000).filter(|&id| cache.peek(FileId(id % 3), id) == Some(&record(id))).count();
        assert!(kept > 1_500, "{kept}");
        assert_eq!(cache.peek(FileId(5), 99_999), None);
        cache.insert(FileId(0), 0, record(7));
        assert_eq!(cache.get(FileId(0), 0), Some(&record(7)));
        assert_eq!(cache.counts(), (100_001, 0), "looking without use is not counted");
        let counted: usize = cache.sets.iter().flat_map(|set| &set.items).map(Item::bytes).sum();
        assert_eq!(cache.bytes, counted);
    }

    #[test]
    fn w3_a_smaller_cache_gives_its_memory_back_in_steps() {
        let mut cache = RecordCache::new(2 << 20);
        (0..20_000).for_each(|id| cache.insert(FileId(1), id, Record::new(vec![1])));
        let before = cache.memory_bytes();
        cache.set_capacity(100);
        assert!(cache.memory_bytes() >= before && cache.step());
        while cache.step() {}
        cache.insert(FileId(1), 1, Record::new(vec![1]));
        assert_eq!((cache.memory_bytes(), cache.peek(FileId(1), 1)), (0, None), "too small for a set");
        cache.set_capacity(1 << 20);
        cache.insert(FileId(1), 1, Record::new(vec![1; 200]));
        assert!(cache.peek(FileId(1), 1).is_some(), "a record of many fields");
    }
}
