//! Which ids an overlay may have, in a few bits for each. Most ids of a command that reads a cold table have no entry in its overlay: one line
//! of memory says so, where the search in a large tree misses the processor's cache at each level.

use crate::hash::Hash;
use std::collections::BTreeMap;

/// Entries for each word of a filter, above which it grows: 8 bits for each.
const WORD_ENTRIES: usize = 8;
/// Words of the first filter: a line of memory.
const FIRST_WORDS: usize = 8;
/// Words at most, 256 KiB: to make a larger filter takes too long. An overlay with more entries than it is made for is searched more often.
const WORDS_MAX: usize = 1 << 15;
/// Entries that a larger filter gets for each new one.
const STEP_ENTRIES: usize = 8;

/// Two bits for each id, both in one word.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    words: Box<[u64]>,
    /// The filter to come, and the id from which it still lacks entries. It gets new ones at once.
    next: Option<(Box<[u64]>, u64)>,
}

fn place(id: u64, words: usize) -> (usize, u64) {
    let hash = Hash::of(id, 0).bits();
    let word = ((hash & 0xffff_ffff) * words as u64) >> 32;
    (word as usize, 1 << (hash >> 58) | 1 << ((hash >> 52) & 63))
}

fn set(words: &mut [u64], id: u64) {
    let (word, bits) = place(id, words.len());
    words[word] |= bits;
}

fn zeros(words: usize) -> Box<[u64]> {
    vec![0; words].into_boxed_slice()
}

impl Filter {
    /// Whether an id may have an entry.
    #[inline]
    pub(super) fn may_have(&self, id: u64) -> bool {
        if self.words.is_empty() {
            return false;
        }
        let (word, bits) = place(id, self.words.len());
        self.words[word] & bits == bits
    }

    /// Reads the line of memory that [`Filter::may_have`] needs.
    #[inline]
    pub(super) fn touch(&self, id: u64) {
        if !self.words.is_empty() {
            std::hint::black_box(self.words[place(id, self.words.len()).0]);
        }
    }

    /// Adds the id of a new entry of these. A larger filter gets a few of the others each time: all at once would take too long.
    pub(super) fn add<E>(&mut self, id: u64, entries: &BTreeMap<u64, E>) {
        if self.words.is_empty() {
            self.words = zeros(FIRST_WORDS);
        }
        set(&mut self.words, id);
        let len = self.words.len();
        if self.next.is_none() && entries.len() > len * WORD_ENTRIES && len < WORDS_MAX {
            self.next = Some((zeros(2 * len), 0));
        }
        let Some((words, from)) = &mut self.next else { return };
        set(words, id);
        let mut lacking = entries.range(*from..).map(|(&id, _)| id);
        lacking.by_ref().take(STEP_ENTRIES).for_each(|id| set(words, id));
        match lacking.next() {
            Some(next) => *from = next,
            // It has all of them.
            None => self.words = self.next.take().map_or_else(Box::default, |(words, _)| words),
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        (self.words.len() + self.next.as_ref().map_or(0, |(words, _)| words.len())) * size_of::<u64>()
    }
}
