//! A table that gets no more pairs. Its slots are in one piece of exactly the memory that they need, and nineteen of twenty have a pair:
//! with three bytes of a value, a pair takes 14.9 bytes.
//!
//! It is made segment by segment, a few thousand pairs at a time, so that no view waits for all of them.

use super::chunks::{mapped, use_large_pages};
use super::hash::Pair;
use super::slot::{Rank, SEGMENTS, position_of, segment_of, value_of};
use super::table::PairTable;
use memmap2::MmapMut;
use std::cmp::Reverse;

/// Slots of a segment after the last one that can be the first of a pair.
const TAIL: usize = 16;
/// About so many pairs are moved at once: for some 50 µs.
const STEP_PAIRS: usize = 4_096;

/// A map from pairs to values, which was a [`PairTable`] before.
pub(super) struct SealedTable<const SLOT: usize> {
    /// What has the segments that are not moved yet.
    before: Option<PairTable<SLOT>>,
    /// The number of segments that are moved.
    moved: usize,
    slots: MmapMut,
    /// Where each segment begins, and where the last one ends.
    begins: Box<[usize]>,
    /// Slots of pairs that are after the end of their segment, with its number, in order.
    spilled: Vec<(u8, [u8; SLOT])>,
    len: usize,
}

impl<const SLOT: usize> SealedTable<SLOT> {
    /// The pairs of a table. None of them is moved yet.
    pub(super) fn new(before: PairTable<SLOT>) -> Self {
        let (mut begins, mut end) = (Vec::with_capacity(SEGMENTS + 1), 0);
        for len in before.lens() {
            begins.push(end);
            end += if len == 0 { 0 } else { len + len / 12 + 1 + TAIL };
        }
        begins.push(end);
        let slots = mapped((end * SLOT).max(1));
        use_large_pages(&slots);
        let len = before.len();
        SealedTable { before: Some(before), moved: 0, slots, begins: begins.into(), spilled: Vec::new(), len }
    }

    /// Moves some pairs. Returns whether there were any to be moved.
    pub(super) fn move_some(&mut self) -> bool {
        // So few pairs as in a small table would take several times the memory here.
        let Some(before) = self.before.as_ref().filter(|before| !before.is_small()) else { return false };
        let mut pairs = 0;
        while pairs < STEP_PAIRS && self.moved < SEGMENTS {
            let (begin, end) = (self.begins[self.moved], self.begins[self.moved + 1]);
            let slots: &mut [[u8; SLOT]] = &mut self.slots.as_chunks_mut().0[begin..end];
            let (firsts, mut free) = (slots.len().saturating_sub(TAIL), 0);
            let segment = u8::try_from(self.moved).expect("a segment is a byte");
            before.each_of(segment, |slot| {
                let at = Rank::of(slot).first_of(firsts).max(free);
                match slots.get_mut(at) {
                    Some(place) => *place = *slot,
                    None => self.spilled.push((segment, *slot)),
                }
                free = at + 1;
                pairs += 1;
            });
            self.moved += 1;
        }
        if self.moved == SEGMENTS {
            self.before = None;
            self.spilled.shrink_to_fit();
        }
        true
    }

    /// The value of a pair.
    #[inline]
    pub(super) fn get(&self, pair: &Pair) -> Option<u32> {
        if let Some(before) = self.before.as_ref().filter(|_| segment_of(pair) >= self.moved) {
            return before.search(pair).ok();
        }
        let rank = Rank::of_pair(pair);
        let (slots, first) = self.begin(pair, rank);
        let found = match position_of(&slots[first..], rank) {
            Some(distance) => &slots[first + distance],
            None => self.spilled(pair, rank)?,
        };
        (Rank::of(found) == rank).then(|| value_of(found))
    }

    /// The slots of a pair's segment, and which of them a search reads first.
    #[inline]
    fn begin(&self, pair: &Pair, rank: Rank) -> (&[[u8; SLOT]], usize) {
        let segment = segment_of(pair);
        let slots = &self.slots.as_chunks().0[self.begins[segment]..self.begins[segment + 1]];
        (slots, rank.first_of(slots.len().saturating_sub(TAIL)))
    }

    #[cold]
    fn spilled(&self, pair: &Pair, rank: Rank) -> Option<&[u8; SLOT]> {
        let wanted = (pair[0], Reverse(rank));
        let at = self.spilled.partition_point(|(segment, slot)| (*segment, Reverse(Rank::of(slot))) < wanted);
        self.spilled.get(at).filter(|(segment, _)| *segment == pair[0]).map(|(_, slot)| slot)
    }

    /// The number of pairs.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The memory of its pairs, in bytes. While they are moved, it is that of both tables.
    pub(super) fn bytes(&self) -> usize {
        let spilled = self.spilled.capacity() * size_of::<(u8, [u8; SLOT])>();
        self.slots.len() + spilled + self.before.as_ref().map_or(0, PairTable::bytes)
    }
}
