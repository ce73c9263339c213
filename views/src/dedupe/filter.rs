//! A filter that finds in one read of memory which generations may have a pair. Most pairs are new, and without it each of them is searched in all
//! generations.
//!
//! Each bit of a byte is the filter of one generation, and a pair has three bytes of a line of the processor's cache. With 6.4 bytes for each
//! pair of one generation, one of twenty pairs that a generation does not have is searched in it.

use super::chunks::{mapped, use_large_pages};
use super::slot::Rank;
use memmap2::MmapMut;

const LINE_BYTES: usize = 64;
/// A line for so many pairs of each generation.
const LINE_PAIRS: usize = 10;
/// So many lines are cleared with each pair that is added.
const STEP_LINES: usize = 64;

type Line = [u8; LINE_BYTES];

/// A set of generations, as the bits of their filters.
pub(super) type Generations = u8;
/// Generations that have different bits.
pub(super) const DIFFERENT: u64 = Generations::BITS as u64;

/// A filter for generations of about the same size.
pub(super) struct Filter {
    lines: MmapMut,
    /// The generations that it has now.
    pub(super) generations: Generations,
    /// Bits that may be set, and must be cleared before they become those of another generation.
    dirty: Generations,
    /// The bit that is cleared now, and in how many lines it is.
    clearing: (Generations, usize),
}

impl Filter {
    /// A filter for generations with this number of pairs.
    pub(super) fn new(pairs: usize) -> Filter {
        let lines = mapped(pairs.div_ceil(LINE_PAIRS).max(1) * LINE_BYTES);
        use_large_pages(&lines);
        Filter { lines, generations: 0, dirty: 0, clearing: (0, 0) }
    }

    /// Whether it is about as large as generations with this number of pairs need.
    pub(super) fn suits(&self, pairs: usize) -> bool {
        let fits = self.lines.len() / LINE_BYTES * LINE_PAIRS;
        pairs <= fits + fits / 4 && pairs >= fits / 2
    }

    /// Begins a generation, and clears the bit of the next one bit by bit.
    pub(super) fn begin(&mut self, generation: Generations, next: Generations) {
        while self.dirty & generation != 0 {
            self.clear_some(generation);
        }
        self.generations |= generation;
        self.clearing = (next, 0);
    }

    /// Adds a pair to the generation that has begun.
    #[inline]
    pub(super) fn add(&mut self, rank: Rank, generation: Generations) {
        if self.dirty & self.clearing.0 != 0 {
            self.clear_some(self.clearing.0);
        }
        self.dirty |= generation;
        let (line, places) = self.places(rank);
        let line = &mut self.lines.as_chunks_mut::<LINE_BYTES>().0[line];
        places.into_iter().for_each(|place| line[place] |= generation);
    }

    /// Those of its generations that may have a pair.
    #[inline]
    pub(super) fn find(&self, rank: Rank) -> Generations {
        let (line, places) = self.places(rank);
        let line: &Line = &self.lines.as_chunks().0[line];
        places.into_iter().fold(self.generations, |found, place| found & line[place])
    }

    /// The memory that it has, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.lines.len()
    }

    #[inline]
    fn places(&self, rank: Rank) -> (usize, [usize; 3]) {
        let bits = rank.low_bits() as usize;
        (rank.first_of(self.lines.len() / LINE_BYTES), [0, 6, 12].map(|shift| bits >> shift & (LINE_BYTES - 1)))
    }

    #[cold]
    fn clear_some(&mut self, generation: Generations) {
        if self.clearing.0 != generation {
            self.clearing = (generation, 0);
        }
        let lines: &mut [Line] = self.lines.as_chunks_mut().0;
        let from = self.clearing.1;
        let to = (from + STEP_LINES).min(lines.len());
        lines[from..to].as_flattened_mut().iter_mut().for_each(|byte| *byte &= !generation);
        self.clearing.1 = to;
        if to == lines.len() {
            self.dirty &= !generation;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dedupe::hash::PairHasher;

    #[test]
    fn v2_a_filter_finds_the_generation_of_each_pair_and_few_others() {
        const PAIRS: usize = 20_000;
        let hasher = PairHasher::new(&[5; 32]);
        let rank = |pair: usize| Rank::of_pair(&hasher.pair("v", &pair.to_string()));
        let mut filter = Filter::new(PAIRS);
        // Bits are used again after eight generations.
        for number in 0..20 {
            let bit = |number: usize| 1 << (number % 8);
            filter.begin(bit(number), bit(number + 1));
            (number * PAIRS..(number + 1) * PAIRS).for_each(|pair| filter.add(rank(pair), bit(number)));
            let oldest = number.saturating_sub(5);
            for of in oldest..=number {
                assert!(
                    (of * PAIRS..(of + 1) * PAIRS).all(|pair| filter.find(rank(pair)) & bit(of) != 0),
                    "{of} of {number}"
                );
            }
            let others = (100 * PAIRS..101 * PAIRS).map(|pair| filter.find(rank(pair)).count_ones() as usize);
            let found = others.sum::<usize>() as f64 / (PAIRS * (number - oldest + 1)) as f64;
            assert!(found < 0.08, "{found} of {number}");
            if number >= 5 {
                filter.generations &= !bit(oldest);
            }
        }
    }
}
