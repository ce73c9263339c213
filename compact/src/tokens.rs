//! Tokens of increments: the same token counts once within a window (row W4: across a restart and a failover too).
//!
//! A token is remembered in the slice of its time, and slices are dropped whole. A token of a dropped slice is refused as too
//! old: it certainly does not count a second time.

use crate::hash::Hash;
use crate::refusal::Refusal;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use std::collections::BTreeMap;
use std::ops::Range;

/// How far a token's time may be ahead of the engine's clock.
pub const TOKEN_AHEAD_MS: u64 = 10_000;
/// Bytes of a token at most.
pub const TOKEN_BYTES_MAX: usize = 64;
/// Slices of the window: the memory of a token lasts an eighth of the window longer than promised.
const SLICES: u64 = 8;

/// What identifies a repeated command.
#[derive(Clone, Copy, Debug)]
pub struct Token<'a> {
    /// The client's text.
    pub text: &'a [u8],
    /// When the client made it, in Unix milliseconds.
    pub time_ms: u64,
    /// The arguments of the command that the token is for.
    pub content: &'a [&'a [u8]],
}

/// Whether a command with a token is to be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is the first with its token.
    New,
    /// It was carried out before: answer, and change nothing.
    Repeated,
}

/// 96 bits that stand for a token, and 32 for its command. Among a billion tokens, the probability that two are confused
/// is below 10^-11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) high: u64,
    pub(crate) low: u32,
    pub(crate) content: u32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Tokens {
    /// By the begin of their times, in Unix ms. Their times do not overlap.
    slices: BTreeMap<u64, Slice>,
    /// Parts of dropped slices, to be freed in steps.
    left: Vec<HashTable<Mark>>,
    /// Tokens, and the memory of all parts. A long window that follows a short one has many thousands of parts.
    len: usize,
    bytes: usize,
    /// How long a new slice is.
    slice_ms: u64,
    /// Tokens of earlier times are no longer remembered.
    horizon_ms: u64,
}

/// The tokens of one slice, in parts. A part that grows moves all its tokens, so each must stay small: the parts split one after the
/// other (linear hashing, Litwin 1980).
#[derive(Clone, Debug, Default)]
struct Slice {
    parts: Vec<HashTable<Mark>>,
    len: usize,
    /// No token of this time or a later one comes into the slice.
    ends_ms: u64,
    /// One more than the latest time of its tokens.
    used_ms: u64,
}

/// Tokens for each part, on average, from which one splits; and the parts of a slice, at most.
const PART_TOKENS: usize = 256;
const PARTS_MAX: usize = 4_096;

fn part_bytes(part: &HashTable<Mark>) -> usize {
    part.allocation_size() + size_of::<HashTable<Mark>>()
}

fn is_same(mark: Mark) -> impl Fn(&Mark) -> bool {
    move |other| (other.high, other.low) == (mark.high, mark.low)
}

impl Slice {
    /// The part of a token: as many low bits as number all parts, without the highest one if there is no such part yet.
    fn place(&self, mark: Mark) -> usize {
        let size = self.parts.len().next_power_of_two();
        let place = mark.low as usize & (size - 1);
        if place < self.parts.len() { place } else { place & (size / 2 - 1) }
    }

    fn find(&self, mark: Mark) -> Option<&Mark> {
        self.parts.get(self.place(mark))?.find(mark.high, is_same(mark))
    }

    /// Adds a token. Returns whether it was absent, and by how many bytes the memory grows.
    fn insert(&mut self, mark: Mark) -> (bool, usize) {
        let mut grown = self.split_if_due();
        let place = self.place(mark);
        let part = &mut self.parts[place];
        let before = part_bytes(part);
        let is_new = match part.entry(mark.high, is_same(mark), |mark| mark.high) {
            Entry::Vacant(vacant) => {
                vacant.insert(mark);
                true
            }
            Entry::Occupied(_) => false,
        };
        // A full table grows before it is searched, so also for a token that it has.
        grown += part_bytes(part) - before;
        self.len += usize::from(is_new);
        (is_new, grown)
    }

    /// Adds a part if the others have many tokens. Returns the bytes of it.
    fn split_if_due(&mut self) -> usize {
        let count = self.parts.len();
        if count > 0 && (self.len < count * PART_TOKENS || count >= PARTS_MAX) {
            return 0;
        }
        let mut part = HashTable::new();
        // Half of the tokens of the part whose number lacks the highest bit of the new one.
        if let Some(bit) = count.checked_ilog2() {
            let is_moved = |mark: &mut Mark| mark.low as usize & ((2 << bit) - 1) == count;
            let moved: Vec<Mark> = self.parts[count - (1 << bit)].extract_if(is_moved).collect();
            part.reserve(moved.len(), |mark: &Mark| mark.high);
            for mark in moved {
                part.insert_unique(mark.high, mark, |mark| mark.high);
            }
        }
        let bytes = part_bytes(&part);
        self.parts.push(part);
        bytes
    }
}

/// 128 bits of texts of any lengths.
fn digest(texts: &[&[u8]], seed: u64) -> (u64, u64) {
    let (mut first, mut second) = (seed, !seed);
    let mut take = |word: u64| {
        first = Hash::of(word, first).bits();
        second = Hash::of(word ^ first.rotate_left(32), second).bits();
    };
    for text in texts {
        take(text.len() as u64);
        for chunk in text.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            take(u64::from_le_bytes(word));
        }
    }
    (first, second)
}

impl Tokens {
    pub(crate) fn new(window_ms: u64) -> Tokens {
        Tokens { slice_ms: (window_ms / SLICES).max(1), ..Tokens::default() }
    }

    /// Refuses a token whose time is outside of what is remembered, and says whether it is a repetition. A new one is to be
    /// remembered once its command is carried out.
    pub(crate) fn admit(
        &self,
        token: Token<'_>,
        window_ms: u64,
        now_ms: u64,
        seed: u64,
    ) -> Result<(Admission, Mark), Refusal> {
        if window_ms == 0 {
            return Err(Refusal::invalid("this key takes no tokens (TOKEN_WINDOW_MS is 0)"));
        }
        if token.text.is_empty() || token.text.len() > TOKEN_BYTES_MAX {
            return Err(Refusal::invalid(format!("a token has 1 to {TOKEN_BYTES_MAX} bytes")));
        }
        if token.time_ms > now_ms.saturating_add(TOKEN_AHEAD_MS) {
            return Err(Refusal::TooEarly);
        }
        if token.time_ms < now_ms.saturating_sub(window_ms) || token.time_ms < self.horizon_ms {
            return Err(Refusal::TooOld);
        }
        let mark = self.mark(token, seed);
        match self.slice(token.time_ms).and_then(|slice| slice.find(mark)) {
            None => Ok((Admission::New, mark)),
            Some(known) if known.content == mark.content => Ok((Admission::Repeated, mark)),
            Some(_) => Err(Refusal::TokenReused),
        }
    }

    /// What stands for a token.
    pub(crate) fn mark(&self, token: Token<'_>, seed: u64) -> Mark {
        let (high, low) = digest(&[token.text, &token.time_ms.to_le_bytes()], seed);
        Mark { high, low: low as u32, content: digest(token.content, seed).0 as u32 }
    }

    /// The slice of a time.
    fn slice(&self, time_ms: u64) -> Option<&Slice> {
        let (_, slice) = self.slices.range(..=time_ms).next_back()?;
        (time_ms < slice.ends_ms).then_some(slice)
    }

    pub(crate) fn remember(&mut self, time_ms: u64, mark: Mark) {
        let begin_ms = time_ms - time_ms % self.slice_ms;
        self.remember_in(begin_ms..begin_ms.saturating_add(self.slice_ms), time_ms, mark);
    }

    /// The same; if the time has no slice yet, it gets one of these times, without those that have one.
    pub(crate) fn remember_in(&mut self, times_ms: Range<u64>, time_ms: u64, mark: Mark) {
        let before = self.slices.range(..=time_ms).next_back().map(|(begin_ms, slice)| (*begin_ms, slice.ends_ms));
        let begin_ms = match before {
            Some((begin_ms, ends_ms)) if time_ms < ends_ms => begin_ms,
            _ => times_ms.start.min(time_ms).max(before.map_or(0, |(_, ends_ms)| ends_ms)),
        };
        if !self.slices.contains_key(&begin_ms) {
            let next_ms = self.slices.range(time_ms..).next().map_or(u64::MAX, |(begin_ms, _)| *begin_ms);
            let ends_ms = times_ms.end.max(time_ms.saturating_add(1)).min(next_ms);
            self.slices.insert(begin_ms, Slice { ends_ms, ..Slice::default() });
        }
        let Some(slice) = self.slices.get_mut(&begin_ms) else { return };
        slice.used_ms = slice.used_ms.max(time_ms.saturating_add(1));
        let (is_new, grown) = slice.insert(mark);
        self.len += usize::from(is_new);
        self.bytes += grown;
    }

    /// Drops the oldest slice if all of its tokens are older than the window, and frees a part of a dropped one. Returns whether
    /// there is more to free.
    pub(crate) fn forget(&mut self, window_ms: u64, now_ms: u64) -> bool {
        if let Some(first) = self.slices.first_entry() {
            let used_ms = first.get().used_ms;
            if used_ms <= now_ms.saturating_sub(window_ms) {
                self.horizon_ms = self.horizon_ms.max(used_ms);
                let slice = first.remove();
                self.len -= slice.len;
                self.left.extend(slice.parts);
            }
        }
        let Some(part) = self.left.pop() else { return false };
        self.bytes -= part_bytes(&part);
        !self.left.is_empty()
    }

    /// Follows a changed window. A slice gets no token that is later than those it has, so that later ones are dropped as slices of
    /// the new length are.
    pub(crate) fn resize(&mut self, window_ms: u64) {
        let slice_ms = (window_ms / SLICES).max(1);
        if slice_ms != self.slice_ms {
            self.slices.values_mut().for_each(|slice| slice.ends_ms = slice.used_ms);
        }
        self.slice_ms = slice_ms;
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn parts(&self) -> (u64, u64) {
        (self.slice_ms, self.horizon_ms)
    }

    pub(crate) fn from_parts(slice_ms: u64, horizon_ms: u64) -> Tokens {
        Tokens { slice_ms: slice_ms.max(1), horizon_ms, ..Tokens::default() }
    }

    /// Each slice: the times of its tokens, and its marks.
    pub(crate) fn slices(&self) -> impl Iterator<Item = (Range<u64>, impl Iterator<Item = &Mark>)> {
        self.slices.iter().map(|(begin_ms, slice)| (*begin_ms..slice.used_ms, slice.parts.iter().flatten()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_MS: u64 = 8_000;

    fn token(text: &'static str, time_ms: u64) -> Token<'static> {
        Token { text: text.as_bytes(), time_ms, content: &[b"1", b"likes", b"1"] }
    }

    #[test]
    fn w4_a_token_counts_once_and_is_then_too_old() {
        let mut tokens = Tokens::new(WINDOW_MS);
        let now = 1_000_000;
        let (admission, mark) = tokens.admit(token("a", now), WINDOW_MS, now, 7).unwrap();
        assert_eq!(admission, Admission::New);
        tokens.remember(now, mark);
        let again =
            |tokens: &Tokens, at| tokens.admit(token("a", now), WINDOW_MS, at, 7).map(|(admission, _)| admission);
        assert_eq!(again(&tokens, now + WINDOW_MS), Ok(Admission::Repeated));
        tokens.forget(WINDOW_MS, now + WINDOW_MS);
        assert_eq!(tokens.len(), 1, "it is still in its window");
        assert_eq!(again(&tokens, now + WINDOW_MS + 1), Err(Refusal::TooOld));
        while tokens.forget(WINDOW_MS, now + WINDOW_MS + 1_000) {}
        assert_eq!(tokens.len(), 0);
        assert_eq!(again(&tokens, now), Err(Refusal::TooOld), "also when the clock steps back");
        let other = Token { content: &[b"1", b"likes", b"2"], ..token("b", now + 2_000) };
        let (_, mark) = tokens.admit(token("b", now + 2_000), WINDOW_MS, now, 7).unwrap();
        tokens.remember(now + 2_000, mark);
        assert_eq!(tokens.admit(other, WINDOW_MS, now, 7), Err(Refusal::TokenReused));
        assert_eq!(tokens.admit(token("c", now + 10_001), WINDOW_MS, now, 7), Err(Refusal::TooEarly));
        assert!(tokens.admit(token("", now), WINDOW_MS, now, 7).is_err());
    }

    #[test]
    fn w4_tokens_and_their_memory_are_counted_as_they_come_and_go() {
        let mut tokens = Tokens::new(WINDOW_MS);
        let visited = |tokens: &Tokens| {
            let parts = || tokens.slices.values().flat_map(|slice| &slice.parts);
            (parts().map(HashTable::len).sum::<usize>(), parts().chain(&tokens.left).map(part_bytes).sum::<usize>())
        };
        for step in 0..30_000_u64 {
            let text = (step % 20_000).to_le_bytes();
            let token = Token { text: &text, time_ms: 1_000_000 + step / 2, content: &[b"1"] };
            let mark = tokens.mark(token, 7);
            tokens.remember(token.time_ms, mark);
            // A token that it has changes no count, though a full table grows.
            tokens.remember(token.time_ms, mark);
            if step % 10 == 0 {
                tokens.forget(WINDOW_MS, token.time_ms);
            }
            if step % 1_000 == 0 {
                assert_eq!((tokens.len(), tokens.memory_bytes()), visited(&tokens));
            }
        }
        assert!(tokens.len() > 10_000 && tokens.len() < 20_000, "{}", tokens.len());
        while tokens.forget(WINDOW_MS, u64::MAX) || !tokens.slices.is_empty() {}
        assert_eq!((tokens.len(), tokens.memory_bytes()), (0, 0));
    }

    /// Tokens of a time in which the window was long are kept as long as that; later ones are not.
    #[test]
    fn w4_a_window_that_was_changed_holds_for_later_tokens() {
        const WEEK_MS: u64 = 7 * 24 * 3_600_000;
        for (before, after) in [(WEEK_MS, WINDOW_MS), (WINDOW_MS, WEEK_MS)] {
            let (mut tokens, mut now) = (Tokens::new(before), 1_700_000_000_000);
            let count = |tokens: &mut Tokens, text, time_ms, now_ms, window_ms| {
                let (admission, mark) = tokens.admit(token(text, time_ms), window_ms, now_ms, 7).unwrap();
                tokens.remember(time_ms, mark);
                admission
            };
            for step in 0..20 {
                assert_eq!(count(&mut tokens, "a", now + step, now + step, before), Admission::New);
            }
            tokens.resize(after);
            now += 60_000;
            for step in 0..1_000 {
                assert_eq!(count(&mut tokens, "b", now + step, now + step, after), Admission::New);
                assert_eq!(count(&mut tokens, "b", now + step, now + step, after), Admission::Repeated);
            }
            // Of one time in a slice that was begun, and of the time before a slice.
            for time_ms in [now - 60_000 + 5, now - 3_000] {
                if time_ms >= now.saturating_sub(after) {
                    count(&mut tokens, "c", time_ms, now, after);
                    assert_eq!(count(&mut tokens, "c", time_ms, now, after), Admission::Repeated);
                }
            }
            // Others are forgotten, though tokens come all the time.
            let later = now + 1_000 + after + after / SLICES + 1;
            assert_eq!(count(&mut tokens, "d", later, later, after), Admission::New);
            for _ in 0..20 {
                while tokens.forget(after, later) {}
            }
            assert_eq!(tokens.len(), 1, "{before} to {after} ms");
            assert!(tokens.slices.len() < 20);
        }
    }

    #[test]
    fn w4_few_tokens_take_little_memory_and_each_of_many_is_found() {
        let mut tokens = Tokens::new(1 << 30);
        let mark = |number: u64| {
            let mixed = Hash::of(number, 7).bits();
            Mark { high: mixed, low: (mixed >> 20) as u32, content: 0 }
        };
        tokens.remember(1, mark(0));
        assert!(tokens.memory_bytes() < 200, "{} bytes", tokens.memory_bytes());
        for number in 1..300_000 {
            tokens.remember(1, mark(number));
        }
        let slice = tokens.slice(1).unwrap();
        assert!((0..300_000).all(|number| slice.find(mark(number)).is_some()) && slice.find(mark(300_000)).is_none());
        let most = slice.parts.iter().map(HashTable::len).max().unwrap();
        assert!(most < 4 * PART_TOKENS, "{most} tokens in a part");
        assert!(tokens.memory_bytes() < 300_000 * 60, "{} bytes", tokens.memory_bytes());
        tokens.remember(1, mark(5));
        assert_eq!((tokens.len(), tokens.slices().map(|(_, marks)| marks.count()).sum::<usize>()), (300_000, 300_000));
    }

    #[test]
    fn w4_texts_are_distinguished_by_their_borders() {
        assert_ne!(digest(&[b"ab", b"c"], 1), digest(&[b"a", b"bc"], 1));
        assert_ne!(digest(&[b"a"], 1), digest(&[b"a\0"], 1));
        assert_ne!(digest(&[b"a", b""], 1), digest(&[b"a"], 1));
    }
}
