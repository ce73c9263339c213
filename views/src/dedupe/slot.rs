//! How tables keep a pair: in a slot of bytes, without its first byte, which is the number of its segment.
//!
//! The slots of a segment are sorted: their pairs are in descending order, and the order of their first slots is the same. So a search
//! ends at the first pair that is not greater, after some slots, also if it finds nothing, as it mostly does.

use super::hash::{PAIR_BYTES, Pair};

/// Each first byte of a pair has a segment.
pub(super) const SEGMENTS: usize = 256;
/// Bytes of a slot for its pair. The others are its value: at most 3.
pub(super) const REST_BYTES: usize = PAIR_BYTES - 1;

/// The number of the segment of a pair.
#[inline]
pub(super) fn segment_of(pair: &Pair) -> usize {
    usize::from(pair[0])
}

/// The slot of a pair. The value has as many bytes, the lower ones of a number, as the slot has for it.
#[inline]
pub(super) fn slot_of<const SLOT: usize>(pair: &Pair, value: u32) -> [u8; SLOT] {
    let mut slot = [0; SLOT];
    let (rest, bytes) = slot.split_at_mut(REST_BYTES);
    rest.copy_from_slice(&pair[1..]);
    bytes.copy_from_slice(&value.to_be_bytes()[size_of::<u32>() - bytes.len()..]);
    slot
}

/// The value of a slot.
#[inline]
pub(super) fn value_of<const SLOT: usize>(slot: &[u8; SLOT]) -> u32 {
    slot[REST_BYTES..].iter().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

/// What the pairs of a segment are sorted by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    high: u64,
    low: u32,
}

impl Rank {
    /// That of an empty slot: less than that of each pair, so a search ends at an empty slot, too.
    pub(super) const EMPTY: Rank = Rank { high: 0, low: 0 };

    /// The rank of a pair among those of its segment.
    #[inline]
    pub(super) fn of_pair(pair: &Pair) -> Rank {
        let [_, low0, low1, low2, high @ ..] = *pair;
        Rank { high: u64::from_le_bytes(high), low: u32::from_le_bytes([low0, low1, low2, 0]) }
    }

    /// The rank of a slot.
    #[inline]
    pub(super) fn of<const SLOT: usize>(slot: &[u8; SLOT]) -> Rank {
        Rank { high: high_of(slot), low: u32::from_le_bytes([slot[0], slot[1], slot[2], 0]) }
    }

    /// 24 bits that have no part in the first slot.
    #[inline]
    pub(super) fn low_bits(self) -> u32 {
        self.low
    }

    /// The first slot that a pair may have, of so many: the greatest pair has the first one.
    #[inline]
    pub(super) fn first_of(self, firsts: usize) -> usize {
        // Scaled to the number of slots, which is no power of two.
        ((u128::from(!self.high) * firsts as u128) >> 64) as usize
    }
}

#[inline]
fn high_of<const SLOT: usize>(slot: &[u8; SLOT]) -> u64 {
    let [_, _, _, high @ ..] = slot.first_chunk::<REST_BYTES>().expect("a slot has a pair");
    u64::from_le_bytes(*high)
}

/// Where the pair of this rank is among these slots, or where it belongs; `None`: after all of them.
#[inline]
pub(super) fn position_of<const SLOT: usize>(slots: &[[u8; SLOT]], rank: Rank) -> Option<usize> {
    // Hardly any two pairs have the same eight bytes, so comparing these alone finds the place.
    let at = slots.iter().position(|slot| high_of(slot) <= rank.high)?;
    Some(at + slots[at..].iter().position(|slot| Rank::of(slot) <= rank)?)
}
