//! A set of pairs, each with a small value, in little more memory than they have.
//!
//! Open addressing with linear probing. The table has a segment for each first byte of a pair, and a segment is a list of chunks. It grows
//! by an eighth, at least by one chunk, when it is nine tenths full: so one segment at a time is copied, and its chunks are used again. A
//! pair takes 11 bytes and its value, divided by the load: 12.3 to 14 bytes without a value, 15.7 to 18 with three bytes.
//!
//! The price of [sorted](super::slot) slots is that an insertion moves the pairs up to the next empty slot by one.

use super::chunks::{CHUNK_BYTES, Chunk, Chunks};
use super::hash::Pair;
use super::slot::{Rank, SEGMENTS, position_of, segment_of, slot_of, value_of};
use std::collections::BTreeMap;

/// Slots after the last one that can be the first of a pair. If they are used, a chunk follows.
const TAIL: usize = 16;
/// A table with so many pairs has chunks: one for each segment then, so with fewer pairs they would be nearly empty.
pub(super) const FEW_MAX: usize = 8_192;
/// About the memory of one of few pairs.
const FEW_BYTES: usize = 30;

/// A map from pairs to values of `SLOT - 11` bytes.
pub(crate) struct PairTable<const SLOT: usize> {
    /// All pairs, until they are more.
    few: BTreeMap<Pair, u32>,
    /// Empty as long as there are few pairs.
    segments: Vec<Segment>,
    chunks: Chunks,
    len: usize,
}

#[derive(Clone, Default)]
struct Segment {
    chunks: Vec<u32>,
    firsts: usize,
    used: usize,
}

/// Where a pair that is not in a table belongs.
pub(super) struct InsertionPoint {
    /// The chunk as an index into those of the segment: its length if the slot is after all of them.
    chunk: usize,
    slot: usize,
}

impl<const SLOT: usize> PairTable<SLOT> {
    /// The slots of a chunk. The bytes after them are not used.
    const SLOTS: usize = CHUNK_BYTES / SLOT;

    /// No pairs.
    pub(crate) fn new() -> Self {
        PairTable { few: BTreeMap::new(), segments: Vec::new(), chunks: Chunks::default(), len: 0 }
    }

    /// The value of a pair, or its place.
    #[inline]
    pub(super) fn search(&self, pair: &Pair) -> Result<u32, InsertionPoint> {
        let Some(segment) = self.segments.get(segment_of(pair)) else {
            return self.few.get(pair).copied().ok_or(InsertionPoint { chunk: 0, slot: 0 });
        };
        let rank = Rank::of_pair(pair);
        let first = rank.first_of(segment.firsts);
        let (first_chunk, mut from) = (first / Self::SLOTS, first % Self::SLOTS);
        for (chunk, number) in segment.chunks.iter().enumerate().skip(first_chunk) {
            let slots = Self::slots(self.chunks.get(*number));
            if let Some(distance) = position_of(&slots[from..], rank) {
                let found = &slots[from + distance];
                let place = InsertionPoint { chunk, slot: from + distance };
                return if Rank::of(found) == rank { Ok(value_of(found)) } else { Err(place) };
            }
            from = 0;
        }
        Err(InsertionPoint { chunk: segment.chunks.len(), slot: 0 })
    }

    /// Adds a pair unless it is there. Returns whether it was added.
    pub(crate) fn insert(&mut self, pair: &Pair, value: u32) -> bool {
        match self.search(pair) {
            Ok(_) => false,
            Err(place) => {
                self.insert_at(place, pair, value);
                true
            }
        }
    }

    /// Adds a pair where a search has not found it. Nothing was added since.
    pub(super) fn insert_at(&mut self, mut place: InsertionPoint, pair: &Pair, value: u32) {
        self.len += 1;
        let number = segment_of(pair);
        let Some(Segment { firsts, used, .. }) = self.segments.get_mut(number) else {
            self.few.insert(*pair, value);
            if self.few.len() > FEW_MAX {
                self.begin_chunks();
            }
            return;
        };
        *used += 1;
        if *used * 10 > *firsts * 9 {
            self.grow(number);
            place = self.search(pair).err().unwrap_or(place);
        }
        self.shift_in(number, place, slot_of(pair, value));
    }

    /// The number of pairs.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether it has so few pairs that they are in no segments.
    pub(super) fn is_small(&self) -> bool {
        self.segments.is_empty()
    }

    /// The memory of its pairs, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.few.len() * FEW_BYTES + self.chunks.bytes()
    }

    /// The number of pairs of each segment; a small table has none in segments.
    pub(super) fn lens(&self) -> [usize; SEGMENTS] {
        let mut lens = [0; SEGMENTS];
        lens.iter_mut().zip(&self.segments).for_each(|(len, segment)| *len = segment.used);
        lens
    }

    /// Takes the pairs of a segment, in descending order.
    pub(super) fn each_of(&self, segment: u8, take: impl FnMut(&[u8; SLOT])) {
        let chunks = self.segments.get(usize::from(segment)).into_iter().flat_map(|segment| &segment.chunks);
        let slots = chunks.flat_map(|number| Self::slots(self.chunks.get(*number)));
        slots.filter(|slot| Rank::of(slot) != Rank::EMPTY).for_each(take);
    }

    #[inline]
    fn slots(chunk: &Chunk) -> &[[u8; SLOT]] {
        chunk.as_chunks().0
    }

    #[cold]
    fn begin_chunks(&mut self) {
        self.segments = vec![Segment::default(); SEGMENTS];
        self.len = 0;
        for (pair, value) in std::mem::take(&mut self.few) {
            self.insert(&pair, value);
        }
    }

    /// Puts a slot into its place, and moves those up to the next empty one by one.
    fn shift_in(&mut self, segment: usize, place: InsertionPoint, mut slot: [u8; SLOT]) {
        let InsertionPoint { mut chunk, slot: mut at } = place;
        loop {
            let Some(number) = self.segments[segment].chunks.get(chunk) else {
                // A chunk of empty slots, of which the next pass uses the first.
                let number = self.chunks.add(&[0; CHUNK_BYTES]);
                self.segments[segment].chunks.push(number);
                continue;
            };
            let slots: &mut [[u8; SLOT]] = self.chunks.get_mut(*number).as_chunks_mut().0;
            let empty = slots[at..].iter().position(|slot| Rank::of(slot) == Rank::EMPTY);
            let end = empty.map_or(slots.len() - 1, |distance| at + distance);
            let moved = slots[end];
            slots.copy_within(at..end, at + 1);
            slots[at] = slot;
            if empty.is_some() {
                return;
            }
            (slot, chunk, at) = (moved, chunk + 1, 0);
        }
    }

    #[cold]
    fn grow(&mut self, segment: usize) {
        let Segment { chunks: before, firsts, .. } = &mut self.segments[segment];
        let before = std::mem::take(before);
        let chunks_wanted = before.len() + ((before.len() + 4) / 8).max(1);
        *firsts = chunks_wanted * Self::SLOTS - TAIL;
        let firsts = *firsts;
        let mut after = Vec::with_capacity(chunks_wanted);
        // The chunk that is written now, and the position of its first slot. No position before `free` is.
        let (mut chunk, mut begin, mut free) = ([0; CHUNK_BYTES], 0, 0);
        for number in before {
            // It is used again at once.
            let read = self.chunks.remove(number);
            for slot in Self::slots(&read) {
                let rank = Rank::of(slot);
                if rank == Rank::EMPTY {
                    continue;
                }
                let at = rank.first_of(firsts).max(free);
                while at >= begin + Self::SLOTS {
                    after.push(self.chunks.add(&chunk));
                    chunk.fill(0);
                    begin += Self::SLOTS;
                }
                chunk.as_chunks_mut().0[at - begin] = *slot;
                free = at + 1;
            }
        }
        while after.len() < chunks_wanted || begin < free {
            after.push(self.chunks.add(&chunk));
            chunk.fill(0);
            begin += Self::SLOTS;
        }
        self.segments[segment].chunks = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dedupe::hash::{PAIR_BYTES, PairHasher};
    use crate::dedupe::sealed::SealedTable;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use std::collections::HashMap;

    #[test]
    fn v2_a_pair_takes_at_most_18_bytes_on_average_over_all_sizes() {
        let hasher = PairHasher::new(&[7; 32]);
        let mut table = PairTable::<14>::new();
        let (mut sum, mut sizes) = (0.0, 0);
        for number in 0..400_000 {
            assert!(table.insert(&hasher.pair("video", &number.to_string()), 66_051));
            if number >= 200_000 && number % 5_000 == 0 {
                let bytes = table.bytes() as f64 / table.len() as f64;
                assert!(bytes <= 19.0, "{bytes} bytes for each of {number}");
                (sum, sizes) = (sum + bytes, sizes + 1);
            }
        }
        let mean = sum / f64::from(sizes);
        assert!(mean <= 17.5, "{mean}");
        assert_eq!(table.len(), 400_000);
        assert!(!table.insert(&hasher.pair("video", "17"), 0));
        assert_eq!(table.search(&hasher.pair("video", "17")).ok(), Some(66_051));
        assert!(table.search(&hasher.pair("video", "-1")).is_err());
        assert!(table.search(&hasher.pair("video1", "7")).is_err(), "ids are not concatenated");
        let mut sealed = SealedTable::new(table);
        while sealed.move_some() {}
        let bytes = sealed.bytes() as f64 / sealed.len() as f64;
        assert!(bytes <= 15.8, "{bytes}");
    }

    #[test]
    fn v2_a_table_has_exactly_what_was_inserted_also_while_it_is_sealed() {
        let seed: u64 = rand::rng().random();
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        // Few pairs; and pairs that are close to each other, or at an end of the order: their clusters are long, and reach the end of the slots.
        for (high, pairs) in
            [([0; 2], 3_000), ([0; 2], 14_000), ([0, 1], 14_000), ([0xff; 2], 14_000), ([0x80, 0], 14_000)]
        {
            let (mut table, mut expected) = (PairTable::<14>::new(), HashMap::new());
            for number in 0..pairs {
                let mut pair = [0; PAIR_BYTES];
                random.fill(&mut pair[..]);
                pair[0] = random.random_range(0..2);
                pair[10..].copy_from_slice(&high);
                if random.random() {
                    // They differ in the bytes that have no part in the first slot.
                    pair[4..10].fill(7);
                }
                if random.random_ratio(1, 4) && !expected.is_empty() {
                    pair = *expected.keys().next().unwrap();
                }
                assert_eq!(table.search(&pair).ok(), expected.get(&pair).copied(), "seed {seed}, pair {number}");
                assert_eq!(table.insert(&pair, number), !expected.contains_key(&pair), "seed {seed}, pair {number}");
                expected.entry(pair).or_insert(number);
            }
            assert_eq!(table.len(), expected.len());
            expected.iter().for_each(|(pair, value)| assert_eq!(table.search(pair).ok(), Some(*value), "seed {seed}"));
            for segment in 0..2 {
                let mut ranks = Vec::new();
                table.each_of(segment, |slot| ranks.push(Rank::of(slot)));
                assert_eq!(ranks.len(), table.lens()[usize::from(segment)], "seed {seed}");
                assert!(ranks.is_sorted_by(|a, b| a > b), "seed {seed}");
            }
            let mut sealed = SealedTable::new(table);
            loop {
                expected.iter().for_each(|(pair, value)| assert_eq!(sealed.get(pair), Some(*value), "seed {seed}"));
                for _ in 0..1_000 {
                    let mut pair = *expected.keys().next().unwrap();
                    random.fill(&mut pair[1..7]);
                    assert_eq!(sealed.get(&pair), expected.get(&pair).copied(), "seed {seed}");
                }
                if !sealed.move_some() {
                    break;
                }
            }
            assert_eq!(sealed.len(), expected.len());
        }
    }
}
