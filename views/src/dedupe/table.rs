//! A set of pairs, each with some bytes of a value, in little more memory than they have.
//!
//! Open addressing with linear probing. The table has many segments, and each grows by an eighth when it is nine tenths full:
//! so at least eight tenths of its slots are used, and one segment at a time is copied. A pair takes 12 bytes and its value, divided by
//! the load: 13.3 to 15 bytes without a value, 16.7 to 18.8 with three bytes.
//!
//! A segment is sorted: the pairs are in descending order, and the order of their first slots is the same. So a search ends at the first
//! pair that is not greater, after some five slots, also if it finds nothing, as it mostly does. In a table that is not sorted it would
//! have to read all slots up to an empty one: some 25. The price is that an insertion moves the pairs up to the next empty slot by one.

use super::hash::{PAIR_BYTES, Pair};

/// A power of two: bits of the first byte choose the segment.
const SEGMENTS: usize = 64;
/// A segment grows by this many slots at least.
const GROWTH_MIN: usize = 8;
/// Slots after the last one that can be the first of a pair. If they are used, as many follow.
const TAIL: usize = 16;

/// One slot; a zero pair: it is empty. All fields are bytes, so it has no padding.
#[derive(Clone, Copy)]
struct Slot<const VALUE: usize> {
    pair: Pair,
    value: [u8; VALUE],
}

#[derive(Clone, Default)]
struct Segment<const VALUE: usize> {
    /// Those from `firsts` on are the tail.
    slots: Vec<Slot<VALUE>>,
    firsts: usize,
    used: usize,
}

/// A map from pairs to `VALUE` bytes.
pub(crate) struct PairTable<const VALUE: usize> {
    segments: Vec<Segment<VALUE>>,
}

impl<const VALUE: usize> PairTable<VALUE> {
    pub(crate) fn new() -> Self {
        PairTable { segments: vec![Segment::default(); SEGMENTS] }
    }

    /// The value of a pair.
    pub(crate) fn get(&self, pair: &Pair) -> Option<[u8; VALUE]> {
        let segment = &self.segments[segment_of(pair)];
        let slot = segment.slots.get(segment.position_of(pair))?;
        (slot.pair == *pair).then_some(slot.value)
    }

    /// Adds a pair unless it is there. Returns whether it was added.
    pub(crate) fn insert(&mut self, pair: &Pair, value: [u8; VALUE]) -> bool {
        self.segments[segment_of(pair)].insert(Slot { pair: *pair, value })
    }

    /// The number of pairs.
    pub(crate) fn len(&self) -> usize {
        self.segments.iter().map(|segment| segment.used).sum()
    }

    /// The memory of its slots, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.segments.iter().map(|segment| segment.slots.capacity() * size_of::<Slot<VALUE>>()).sum()
    }
}

fn segment_of(pair: &Pair) -> usize {
    usize::from(pair[0]) % SEGMENTS
}

/// What pairs are sorted by. The zero pair is less than all others, so a search ends at an empty slot, too.
fn rank(pair: &Pair) -> (u64, u32) {
    let (low, high) = pair.split_at(4);
    (u64::from_le_bytes(high.try_into().expect("eight bytes")), u32::from_le_bytes(low.try_into().expect("four bytes")))
}

impl<const VALUE: usize> Slot<VALUE> {
    const EMPTY: Self = Slot { pair: [0; PAIR_BYTES], value: [0; VALUE] };

    fn is_empty(&self) -> bool {
        rank(&self.pair) == (0, 0)
    }
}

/// The first slot that a pair may have: the greatest pair has the first one.
fn first_of(pair: &Pair, firsts: usize) -> usize {
    // Scaled to the number of slots, which is no power of two.
    ((u128::from(!rank(pair).0) * firsts as u128) >> 64) as usize
}

impl<const VALUE: usize> Segment<VALUE> {
    /// Where the pair is, or where it belongs; the number of slots: after all of them.
    fn position_of(&self, pair: &Pair) -> usize {
        let (rank_of_pair, first) = (rank(pair), first_of(pair, self.firsts));
        let found = self.slots[first..].iter().position(|slot| rank(&slot.pair) <= rank_of_pair);
        found.map_or(self.slots.len(), |distance| first + distance)
    }

    fn insert(&mut self, slot: Slot<VALUE>) -> bool {
        let mut at = self.position_of(&slot.pair);
        if self.slots.get(at).is_some_and(|found| found.pair == slot.pair) {
            return false;
        }
        if (self.used + 1) * 10 > self.firsts * 9 {
            self.grow();
            at = self.position_of(&slot.pair);
        }
        let empty = self.slots[at..].iter().position(Slot::is_empty).map(|distance| at + distance);
        let empty = empty.unwrap_or_else(|| add_tail(&mut self.slots));
        self.slots.copy_within(at..empty, at + 1);
        self.slots[at] = slot;
        self.used += 1;
        true
    }

    #[cold]
    fn grow(&mut self) {
        self.firsts += (self.firsts / 8).max(GROWTH_MIN);
        let mut slots = vec![Slot::EMPTY; self.firsts + TAIL];
        let mut free = 0;
        for slot in self.slots.iter().filter(|slot| !slot.is_empty()) {
            let at = first_of(&slot.pair, self.firsts).max(free);
            if at == slots.len() {
                add_tail(&mut slots);
            }
            slots[at] = *slot;
            free = at + 1;
        }
        self.slots = slots;
    }
}

/// Adds slots at the end, and returns the first of them.
#[cold]
fn add_tail<const VALUE: usize>(slots: &mut Vec<Slot<VALUE>>) -> usize {
    let end = slots.len();
    slots.reserve_exact(TAIL);
    slots.resize(end + TAIL, Slot::EMPTY);
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dedupe::hash::PairHasher;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use std::collections::HashMap;

    #[test]
    fn v2_a_pair_takes_at_most_18_bytes_on_average_over_all_sizes() {
        let hasher = PairHasher::new(&[7; 32]);
        let mut table = PairTable::<3>::new();
        let (mut sum, mut sizes) = (0.0, 0);
        for number in 0..400_000 {
            assert!(table.insert(&hasher.pair("video", &number.to_string()), [1, 2, 3]));
            if number >= 200_000 && number % 5_000 == 0 {
                let bytes = table.bytes() as f64 / table.len() as f64;
                assert!(bytes <= 19.0, "{bytes} bytes for each of {number}");
                (sum, sizes) = (sum + bytes, sizes + 1);
            }
        }
        let mean = sum / f64::from(sizes);
        assert!(mean <= 18.0, "{mean}");
        assert_eq!(table.len(), 400_000);
        assert!(!table.insert(&hasher.pair("video", "17"), [0; 3]));
        assert_eq!(table.get(&hasher.pair("video", "17")), Some([1, 2, 3]));
        assert_eq!(table.get(&hasher.pair("video", "-1")), None);
        assert_eq!(table.get(&hasher.pair("video1", "7")), None, "ids are not concatenated");
    }
    #[test]
    fn v2_a_table_has_exactly_what_was_inserted() {
        let seed: u64 = rand::rng().random();
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        // Pairs that are close to each other, or at an end of the order: their clusters are long, and reach the end of the slots.
        for high in [[0; 2], [0, 1], [0xff; 2], [0x80, 0]] {
            let (mut table, mut expected) = (PairTable::<3>::new(), HashMap::new());
            for number in 0..3_000_u32 {
                let mut pair = [0; PAIR_BYTES];
                random.fill(&mut pair[..]);
                pair[0] = random.random_range(0..2);
                pair[10..].copy_from_slice(&high);
                if random.random() {
                    // They differ in the bytes that have no part in the first slot.
                    pair[4..10].fill(7);
                }
                if random.random_ratio(1, 4) && !expected.is_empty() {
                    pair = *expected.keys().nth(random.random_range(0..expected.len())).unwrap();
                }
                let [.., a, b, c] = number.to_be_bytes();
                assert_eq!(table.get(&pair), expected.get(&pair).copied(), "seed {seed}, pair {number}");
                assert_eq!(table.insert(&pair, [a, b, c]), !expected.contains_key(&pair), "seed {seed}, pair {number}");
                expected.entry(pair).or_insert([a, b, c]);
            }
            assert_eq!(table.len(), expected.len());
            expected.iter().for_each(|(pair, value)| assert_eq!(table.get(pair), Some(*value), "seed {seed}"));
            let slots = table.segments.iter().map(|segment| &segment.slots);
            slots.for_each(|slots| {
                let used = slots.iter().filter(|slot| !slot.is_empty()).map(|slot| rank(&slot.pair));
                assert!(used.is_sorted_by(|a, b| a > b), "seed {seed}");
            });
        }
    }
}
