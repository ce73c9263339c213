//! A set of pairs, each with some bytes of a value, in little more memory than they have.
//!
//! Open addressing with linear probing. The table has many segments, and each grows by an eighth when it is nine tenths full:
//! so at least eight tenths of its slots are used, and one segment at a time is copied. A pair takes 12 bytes and its value, divided by
//! the load: 13.3 to 15 bytes without a value, 16.7 to 18.8 with three bytes.

use super::hash::{PAIR_BYTES, Pair};

/// A power of two: bits of the first byte choose the segment.
const SEGMENTS: usize = 64;
/// A segment grows by this many slots at least.
const GROWTH_MIN: usize = 8;

/// One slot; a zero pair: it is empty. All fields are bytes, so it has no padding.
#[derive(Clone, Copy)]
struct Slot<const VALUE: usize> {
    pair: Pair,
    value: [u8; VALUE],
}

#[derive(Clone)]
struct Segment<const VALUE: usize> {
    slots: Vec<Slot<VALUE>>,
    used: usize,
}

/// A map from pairs to `VALUE` bytes.
pub(crate) struct PairTable<const VALUE: usize> {
    segments: Vec<Segment<VALUE>>,
}

impl<const VALUE: usize> PairTable<VALUE> {
    pub(crate) fn new() -> Self {
        PairTable { segments: vec![Segment { slots: Vec::new(), used: 0 }; SEGMENTS] }
    }

    /// The value of a pair.
    pub(crate) fn get(&self, pair: &Pair) -> Option<[u8; VALUE]> {
        let slot = self.segments[segment_of(pair)].slot_of(pair)?;
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

impl<const VALUE: usize> Segment<VALUE> {
    /// Where the pair is, or the empty slot where it belongs.
    fn position_of(&self, pair: &Pair) -> Option<usize> {
        let slots = self.slots.len();
        if slots == 0 {
            return None;
        }
        let bits = u64::from_be_bytes(pair[4..PAIR_BYTES].try_into().expect("eight bytes"));
        // Scaled to the number of slots, which is no power of two.
        let mut at = ((u128::from(bits) * slots as u128) >> 64) as usize;
        while self.slots[at].pair != *pair && self.slots[at].pair != [0; PAIR_BYTES] {
            at = if at + 1 == slots { 0 } else { at + 1 };
        }
        Some(at)
    }

    fn slot_of(&self, pair: &Pair) -> Option<&Slot<VALUE>> {
        self.position_of(pair).map(|at| &self.slots[at])
    }

    fn insert(&mut self, slot: Slot<VALUE>) -> bool {
        if self.slot_of(&slot.pair).is_some_and(|found| found.pair == slot.pair) {
            return false;
        }
        if (self.used + 1) * 10 > self.slots.len() * 9 {
            self.grow();
        }
        let at = self.position_of(&slot.pair).expect("a segment that has grown has slots");
        self.slots[at] = slot;
        self.used += 1;
        true
    }

    fn grow(&mut self) {
        let slots = self.slots.len() + (self.slots.len() / 8).max(GROWTH_MIN);
        let empty = Slot { pair: [0; PAIR_BYTES], value: [0; VALUE] };
        let before = std::mem::replace(&mut self.slots, vec![empty; slots]);
        for slot in before.into_iter().filter(|slot| slot.pair != [0; PAIR_BYTES]) {
            let at = self.position_of(&slot.pair).expect("it has slots");
            self.slots[at] = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dedupe::hash::PairHasher;

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
}
