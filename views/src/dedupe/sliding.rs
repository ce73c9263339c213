//! The pairs of a sliding window, in parts of a sixth of its length: those whose windows began in the same part are dropped together. Only the
//! newest part changes. The others are sealed.

use super::filter::{DIFFERENT, Filter, Generations};
use super::hash::Pair;
use super::sealed::SealedTable;
use super::slot::{REST_BYTES, Rank};
use super::table::{FEW_MAX, PairTable};
use super::window::SLIDING_MS_MAX;
use std::collections::VecDeque;
use std::hint::black_box;

/// Pairs are dropped in so many parts.
const GENERATIONS: u64 = 6;
/// Those in a window, with a part of one at each end, have different bits of a filter, and the next one has another bit.
const _: () = assert!(GENERATIONS + 2 <= DIFFERENT);
/// A filter is as large for two generations as for seven. It begins with the generation that has so many before it.
const FILTERED_FROM: usize = 3;
/// A pair has the time of its first view as an offset of three bytes within its generation.
const OFFSET_BYTES: usize = 3;
const _: () = assert!(SLIDING_MS_MAX.div_ceil(GENERATIONS) < 1 << (8 * OFFSET_BYTES));
const SLOT: usize = REST_BYTES + OFFSET_BYTES;

/// The pairs of one window.
pub(super) struct Sliding {
    window_ms: u64,
    /// The oldest one first.
    sealed: VecDeque<Generation<SealedTable<SLOT>>>,
    newest: Option<Generation<PairTable<SLOT>>>,
    /// Only the last one gets more pairs. Each of the others has generations.
    filters: VecDeque<Filter>,
    /// Generations that are in no filter.
    unfiltered: Generations,
}

/// The pairs whose windows began within a part of the window's length.
struct Generation<T> {
    begin_ms: u64,
    /// Its bit in a filter.
    bit: Generations,
    table: T,
}

impl<T> Generation<T> {
    /// Whether the window of a pair with this offset has the time.
    fn has(&self, offset_ms: u32, window_ms: u64, at_ms: u64) -> bool {
        self.begin_ms + u64::from(offset_ms) + window_ms > at_ms
    }
}

impl Sliding {
    /// No pair has counted.
    pub(super) fn new(window_ms: u64) -> Sliding {
        Sliding { window_ms, sealed: VecDeque::new(), newest: None, filters: VecDeque::new(), unfiltered: 0 }
    }

    /// How long a generation is.
    fn generation_ms(&self) -> u64 {
        self.window_ms.div_ceil(GENERATIONS)
    }

    /// Drops pairs that are of no use to views from this time (Unix ms) on.
    pub(super) fn advance(&mut self, at_ms: u64) {
        let lasts_ms = self.generation_ms() - 1 + self.window_ms;
        while let Some(oldest) = self.sealed.front().filter(|oldest| oldest.begin_ms + lasts_ms <= at_ms) {
            let bit = oldest.bit;
            self.sealed.pop_front();
            self.forget(bit);
        }
        if let Some(ended) = self.newest.take_if(|newest| newest.begin_ms + lasts_ms <= at_ms) {
            self.forget(ended.bit);
        }
    }

    /// Takes a view of this time (Unix ms), and returns whether it is the first in its window.
    pub(super) fn is_first(&mut self, pair: &Pair, at_ms: u64) -> bool {
        self.sealed.iter_mut().any(|generation| generation.table.move_some());
        let rank = Rank::of_pair(pair);
        // Read before the newest table is searched, its memory comes at the same time.
        let may_have = black_box(self.filters.iter().fold(self.unfiltered, |found, filter| found | filter.find(rank)));
        let searched = self.newest.as_ref().map(|newest| (newest, newest.table.search(pair)));
        let place = match searched {
            Some((newest, Ok(offset_ms))) if newest.has(offset_ms, self.window_ms, at_ms) => return false,
            // An older generation can only have an older window of it.
            Some((_, Ok(_))) => None,
            _ if self.is_in_sealed(pair, may_have, at_ms) => return false,
            not_found => not_found.and_then(|(_, searched)| searched.err()),
        };
        let begin_ms = at_ms - at_ms % self.generation_ms();
        let offset_ms = u32::try_from(at_ms - begin_ms).expect("a generation has less than 2³² ms");
        let bit = match (&mut self.newest, place) {
            (Some(newest), Some(place)) if newest.begin_ms == begin_ms => {
                newest.table.insert_at(place, pair, offset_ms);
                newest.bit
            }
            _ => {
                let newest = self.begin(begin_ms);
                newest.table.insert(pair, offset_ms);
                newest.bit
            }
        };
        if let Some(filter) = self.filters.back_mut().filter(|filter| filter.generations & bit != 0) {
            filter.add(rank, bit);
        }
        true
    }

    /// Whether a sealed generation, one of these, has the pair with a window that has this time.
    fn is_in_sealed(&self, pair: &Pair, may_have: Generations, at_ms: u64) -> bool {
        let mut generations = self.sealed.iter().rev().filter(|generation| generation.bit & may_have != 0);
        let found = generations.find_map(|generation| Some((generation, generation.table.get(pair)?)));
        found.is_some_and(|(generation, offset_ms)| generation.has(offset_ms, self.window_ms, at_ms))
    }

    /// Seals the newest generation, and begins another one.
    #[cold]
    fn begin(&mut self, begin_ms: u64) -> &mut Generation<PairTable<SLOT>> {
        let bit_of = |number: u64| 1 << (number % DIFFERENT);
        let number = begin_ms / self.generation_ms();
        let bit = bit_of(number);
        let len_before = self.newest.as_ref().map_or(0, |newest| newest.table.len());
        if let Some(Generation { begin_ms, bit, table }) = self.newest.take() {
            self.sealed.push_back(Generation { begin_ms, bit, table: SealedTable::new(table) });
        }
        if len_before <= FEW_MAX || self.sealed.len() < FILTERED_FROM {
            // Searches in small or few tables need no filter.
            self.unfiltered |= bit;
        } else {
            if !self.filters.back().is_some_and(|filter| filter.suits(len_before)) {
                self.filters.push_back(Filter::new(len_before));
            }
            self.filters.back_mut().expect("one was added").begin(bit, bit_of(number + 1));
        }
        self.newest.insert(Generation { begin_ms, bit, table: PairTable::new() })
    }

    /// Of a generation that has ended.
    fn forget(&mut self, bit: Generations) {
        self.unfiltered &= !bit;
        self.filters.iter_mut().for_each(|filter| filter.generations &= !bit);
        let has_generations = |filter: &Filter| filter.generations != 0;
        while self.filters.front().is_some_and(|filter| !has_generations(filter)) {
            self.filters.pop_front();
        }
    }

    /// Pairs that counted before this time are of no more use to views from `at_ms` (Unix ms) on.
    pub(super) fn needed_from_ms(&self, at_ms: u64) -> u64 {
        at_ms.saturating_sub(self.window_ms) + 1
    }

    /// The number of pairs, and the memory that they take in bytes, filters included.
    pub(super) fn size(&self) -> (usize, usize) {
        let sealed = self.sealed.iter().map(|generation| (generation.table.len(), generation.table.bytes()));
        let newest = self.newest.iter().map(|generation| (generation.table.len(), generation.table.bytes()));
        let filters = self.filters.iter().map(|filter| (0, filter.bytes()));
        let all = sealed.chain(newest).chain(filters);
        all.fold((0, 0), |(pairs, bytes), (more, more_bytes)| (pairs + more, bytes + more_bytes))
    }
}
