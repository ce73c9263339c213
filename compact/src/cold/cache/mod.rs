//! The records of cold tables that were read last.

mod set;

use super::FileId;
use crate::hash::Hash;
use crate::record::Record;
use set::{BLOCK_BYTES, Item, SET_BYTES, SPARE_ITEMS, Set, tag};

/// Bytes of records for each set from which the cache gets one more set. A set that was not split for long has twice as many, and still
/// forgets nothing.
const GROW_BYTES: usize = SET_BYTES / 4;
/// Memory of a set beyond its records, at most.
const EMPTY_BYTES: usize = size_of::<Set>() + SPARE_ITEMS * size_of::<Item>();
/// Sets that are allocated together.
const BLOCK_SETS: usize = 512;
/// Sets of a cache that has no records yet: a cache that grows has up to twice as many at its begin.
const FIRST_SETS: usize = 256;
/// Sets that one step gives back.
const STEP_SETS: usize = 64;
/// How many pending records one call of [`RecordCache::settle`] adds to the cache: in a large cache, each costs about a dozen cache misses.
const SETTLED_MAX: usize = 32;
/// How many records may be pending.
const KEPT_MAX: usize = 16 * SETTLED_MAX;
/// A capacity above this is used up to here. Even the list of its blocks grows in a short time.
const CAPACITY_MAX: usize = 1 << 36;

/// Sets in blocks, so that none moves when there are more.
type Blocks = Vec<Box<[Set]>>;

/// Records by file and id, in a bounded number of bytes. The hash leads to a small set, in which the record that was not used for the
/// longest time goes first. The sets become more as the records do, by splitting one after the other (linear hashing). So no step
/// depends on the size of the cache, and nothing ever moves as a whole. Records of a file that was replaced are not requested again,
/// and go first in time.
#[derive(Debug, Default)]
pub(crate) struct RecordCache {
    blocks: Blocks,
    /// Sets in use. Those of the last block that are not in use yet are empty.
    count: usize,
    /// Sets in use when this round of splits began. A round splits each of them once.
    round: usize,
    first_sets: usize,
    /// Sets at most: the first ones, doubled some times, so that all are used alike in the end.
    sets_max: usize,
    /// Bytes of the records, as sets count them.
    bytes: usize,
    /// Memory that the sets have taken.
    taken: usize,
    /// What is left of earlier capacities, to be given back in steps.
    old: Vec<Blocks>,
    /// The block of these that is given back now.
    leaving: Vec<Set>,
    old_bytes: usize,
    /// Pending records, which [`RecordCache::settle`] adds to the cache.
    kept: Vec<(FileId, u64, Record)>,
    kept_bytes: usize,
    hits: u64,
    misses: u64,
}

impl RecordCache {
    /// A cache of this many bytes. It takes no memory before the first record.
    pub(crate) fn new(capacity: usize) -> RecordCache {
        let sets = capacity.min(CAPACITY_MAX) / (SET_BYTES + EMPTY_BYTES);
        let rounds = (sets / FIRST_SETS).checked_ilog2().unwrap_or(0);
        let first_sets = sets >> rounds;
        RecordCache { first_sets, sets_max: first_sets << rounds, ..RecordCache::default() }
    }

    /// Changes the capacity. The records are forgotten, their memory is given back by [`RecordCache::step`].
    pub(crate) fn set_capacity(&mut self, capacity: usize) {
        let next = RecordCache::new(capacity);
        if next.sets_max != self.sets_max {
            let before = std::mem::replace(self, next);
            (self.hits, self.misses) = (before.hits, before.misses);
            self.old_bytes = before.old_bytes + before.taken + blocks_bytes(&before.blocks);
            (self.old, self.leaving) = (before.old, before.leaving);
            (self.kept, self.kept_bytes) = (before.kept, before.kept_bytes);
            self.old.push(before.blocks);
        }
    }

    /// Gives a bounded amount of memory back. Returns whether there is more.
    pub(crate) fn step(&mut self) -> bool {
        if self.leaving.is_empty() {
            while let Some(blocks) = self.old.last_mut() {
                if let Some(block) = blocks.pop() {
                    self.leaving = block.into_vec();
                    break;
                }
                self.old.pop();
            }
        }
        let kept = self.leaving.len().saturating_sub(STEP_SETS);
        for set in self.leaving.drain(kept..) {
            self.old_bytes -= size_of::<Set>() + set.taken_bytes();
        }
        let has_left = self.leaving.is_empty() && self.old.is_empty();
        if has_left {
            (self.old, self.leaving, self.old_bytes) = (Vec::new(), Vec::new(), 0);
        }
        !has_left
    }

    /// The record of an id, if it is known.
    pub(crate) fn peek(&self, file: FileId, id: u64) -> Option<&Record> {
        let hash = hash(file, id);
        let set = self.set(self.place(hash)?);
        set.position(file, id, tag(hash)).map(|found| &set.items[found].record)
    }

    /// Reads the line of memory that says whether the cache has a record, so that it is in the processor's cache when [`RecordCache::peek`]
    /// needs it.
    pub(crate) fn touch(&self, file: FileId, id: u64) {
        if let Some(place) = self.place(hash(file, id)) {
            std::hint::black_box(self.set(place).tags[0]);
        }
    }

    /// The record of an id, if it is known. It is now the last that its set forgets.
    pub(crate) fn get(&mut self, file: FileId, id: u64) -> Option<&Record> {
        let hash = hash(file, id);
        let place = self.place(hash)?;
        let set = set_mut(&mut self.blocks, place);
        let found = set.position(file, id, tag(hash))?;
        set.use_item(found);
        self.hits += 1;
        set.items.last().map(|item| &item.record)
    }

    /// Counts a miss. If `keeps`, the record is added to the cache at a later [`RecordCache::settle`]: until then, a command may rely on
    /// what the cache had when the command began. Of very many, some are not added: their pages are read again.
    pub(crate) fn missed(&mut self, file: FileId, id: u64, record: &Record, keeps: bool) {
        self.misses += 1;
        if keeps && self.sets_max > 0 && self.kept.len() < KEPT_MAX {
            let record = record.clone();
            self.kept_bytes += record.heap_bytes() + BLOCK_BYTES;
            self.kept.push((file, id, record));
        }
    }

    /// Records that were found, and records that had to be read from a page. A command that waits for a page counts once: it looks
    /// for its record again when it has the page.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.hits, self.misses)
    }

    /// Adds pending records to the cache, a bounded number of them. Returns whether there are more.
    pub(crate) fn settle(&mut self) -> bool {
        let mut kept = std::mem::take(&mut self.kept);
        for (file, id, record) in kept.drain(..kept.len().min(SETTLED_MAX)) {
            self.kept_bytes -= record.heap_bytes() + BLOCK_BYTES;
            self.insert(file, id, record);
        }
        let has_more = !kept.is_empty();
        if has_more {
            self.kept = kept;
        }
        has_more
    }

    /// Remembers a record.
    pub(crate) fn insert(&mut self, file: FileId, id: u64, record: Record) {
        let item = Item { file, id, record };
        if self.sets_max == 0 || item.bytes() > SET_BYTES {
            return;
        }
        if self.count == 0 {
            self.blocks.push(block(self.sets_max));
            (self.count, self.round) = (self.first_sets, self.first_sets);
        }
        let hash = hash(file, id);
        let Some(place) = self.place(hash) else { return };
        let set = set_mut(&mut self.blocks, place);
        self.taken -= set.taken_bytes();
        self.bytes -= set.bytes();
        if let Some(found) = set.position(file, id, tag(hash)) {
            set.remove(found);
        }
        set.make_room(item.bytes());
        set.push(item, tag(hash));
        set.shrink();
        self.bytes += set.bytes();
        self.taken += set.taken_bytes();
        while self.count < self.sets_max && self.bytes > self.count * GROW_BYTES {
            self.grow();
        }
    }

    /// Splits the next set.
    fn grow(&mut self) {
        if self.count == self.blocks.len() * BLOCK_SETS {
            self.blocks.push(block(self.sets_max - self.count));
        }
        let (place, next) = (self.count - self.round, self.count);
        self.count += 1;
        if self.count == 2 * self.round {
            self.round = self.count;
        }
        let mut lower = std::mem::take(set_mut(&mut self.blocks, place));
        self.taken -= lower.taken_bytes();
        let mut upper = Set::default();
        for item in std::mem::take(&mut lower).items {
            let hash = hash(item.file, item.id);
            let is_lower = self.place(hash) == Some(place);
            if is_lower { lower.push(item, tag(hash)) } else { upper.push(item, tag(hash)) }
        }
        for (place, mut set) in [(place, lower), (next, upper)] {
            set.shrink();
            self.taken += set.taken_bytes();
            *set_mut(&mut self.blocks, place) = set;
        }
    }

    /// Memory that the cache has taken.
    pub(crate) fn memory_bytes(&self) -> usize {
        let kept = self.kept.capacity() * size_of::<(FileId, u64, Record)>() + self.kept_bytes;
        blocks_bytes(&self.blocks) + self.taken + self.old_bytes + kept
    }

    fn set(&self, place: usize) -> &Set {
        &self.blocks[place / BLOCK_SETS][place % BLOCK_SETS]
    }

    /// The place of the set of a hash. `None`: there are no sets.
    fn place(&self, hash: u64) -> Option<usize> {
        // The sets that were split in this round and those that came of them use one bit more than the others.
        let place = hash.checked_rem(2 * self.round as u64)? as usize;
        Some(if place < self.count { place } else { place - self.round })
    }
}

fn hash(file: FileId, id: u64) -> u64 {
    Hash::of(id, file.0).bits()
}

fn set_mut(blocks: &mut [Box<[Set]>], place: usize) -> &mut Set {
    &mut blocks[place / BLOCK_SETS][place % BLOCK_SETS]
}

/// The next block of sets, of which so many are still to come.
fn block(sets: usize) -> Box<[Set]> {
    (0..sets.min(BLOCK_SETS)).map(|_| Set::default()).collect()
}

/// Memory of the sets themselves. All blocks but the last one are full.
fn blocks_bytes(blocks: &Blocks) -> usize {
    let Some(last) = blocks.last() else { return 0 };
    let sets = (blocks.len() - 1) * BLOCK_SETS + last.len();
    sets * size_of::<Set>() + blocks.capacity() * size_of::<Box<[Set]>>()
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
        verify(&cache);
    }

    /// The running sums are those of the sets.
    fn verify(cache: &RecordCache) {
        let sets = || cache.blocks.iter().flat_map(|block| block.iter());
        assert_eq!(cache.bytes, sets().flat_map(|set| &set.items).map(Item::bytes).sum());
        assert_eq!(cache.taken, sets().map(Set::taken_bytes).sum());
        assert!(sets().skip(cache.count).all(|set| set.items.capacity() == 0));
        assert!(sets().all(|set| set.items.capacity() <= set.items.len() + SPARE_ITEMS));
    }

    #[test]
    fn w3_a_cache_takes_memory_as_it_gets_records() {
        let mut cache = RecordCache::new(1 << 40);
        let record = |id: u64| Record::new(vec![id as i64, 1, 2, 3]);
        let (mut kept, mut most) = (0, 0);
        for id in 0..50_000 {
            let before = cache.memory_bytes();
            cache.insert(FileId(1), id, record(id));
            kept += Item { file: FileId(1), id, record: record(id) }.bytes();
            most = most.max(cache.memory_bytes().saturating_sub(before));
            assert!(cache.memory_bytes() < (48 << 10) + 3 * kept, "{} for {kept}", cache.memory_bytes());
        }
        // A block, and some splits.
        assert!(most < 48 << 10, "one record took {most} bytes");
        verify(&cache);
        let lost = (0..50_000).filter(|&id| cache.peek(FileId(1), id) != Some(&record(id))).count();
        assert!(lost < 50, "{lost} records were forgotten in a cache that is almost empty");
    }

    #[test]
    fn w3_a_cache_that_is_full_uses_all_its_sets_alike() {
        for capacity in [5_000, 700_000, 1_500_000, 1 << 21] {
            let mut cache = RecordCache::new(capacity);
            for id in 0..60_000 {
                cache.insert(FileId(1), id, Record::new(vec![1, 2, 3, id as i64]));
            }
            verify(&cache);
            assert_eq!((cache.count, cache.round), (cache.sets_max, cache.sets_max));
            assert!(cache.memory_bytes() <= capacity + 1_000, "{} of {capacity}", cache.memory_bytes());
            assert!(cache.memory_bytes() > capacity * 3 / 4, "{} of {capacity}", cache.memory_bytes());
            let full = cache.blocks.iter().flatten().filter(|set| set.taken_bytes() > SET_BYTES / 2).count();
            assert!(full == cache.count, "{full} of {} sets", cache.count);
            let before = cache.memory_bytes();
            cache.missed(FileId(1), 7, &Record::new(vec![7; 8]), true);
            assert!(cache.memory_bytes() > before, "what waits is counted too");
            cache.set_capacity(0);
            let mut steps = 0;
            while cache.step() {
                steps += 1;
            }
            assert!(steps + 1 >= cache.count / STEP_SETS);
            cache.settle();
            assert_eq!(cache.memory_bytes(), 0);
        }
    }

    #[test]
    fn w3_a_command_takes_up_a_bounded_number_of_records() {
        let mut cache = RecordCache::new(16 << 20);
        let record = |id: u64| Record::new(vec![1, id as i64]);
        let known = |cache: &RecordCache| (0..2_000).filter(|&id| cache.peek(FileId(1), id).is_some()).count();
        (0..2_000).for_each(|id| cache.missed(FileId(1), id, &record(id), true));
        for settled in (1..=16).map(|count| count * SETTLED_MAX) {
            assert_eq!(cache.settle(), settled < KEPT_MAX);
            assert_eq!((known(&cache), cache.kept_bytes), (settled, (KEPT_MAX - settled) * (16 + BLOCK_BYTES)));
        }
        assert_eq!((cache.kept.capacity(), cache.counts()), (0, (0, 2_000)));
        verify(&cache);
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
