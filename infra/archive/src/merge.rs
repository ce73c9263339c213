//! Merges objects of a slice: few large ones instead of one for each minute. No answer of the archive changes.
//!
//! A merged object has the spans of those that it replaces, and of each shard and time the events of the one that was right. It
//! counts as written when the latest of them was, so what is written later still replaces it. After a crash both are there,
//! and say the same.

use crate::archive::Archive;
use crate::encode::{Encoded, Encoder, key};
use crate::error::ArchiveError;
use crate::event::{ArchivedEvent, ShardSpan};
use crate::footer::GROUP_ROWS;
use crate::name;
use crate::overlap::Later;
use crate::reader::{Listed, Opened, Reader};
use crate::verify::Stored;
use futures::stream::{StreamExt, iter};
use std::cmp::Ordering;
use std::collections::{BTreeSet, BinaryHeap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::vec::IntoIter;

/// Objects that one merge chooses. It reads a row group of each at a time.
const MERGED_MAX: usize = 32;
/// The bytes of the chosen objects, at most; overlapping ones come on top. The merged object is built in memory.
const BYTES_MAX: u64 = 128 * 1_024 * 1_024;
/// In an open slice, no chosen object is larger than this factor times the average of the chosen ones. Otherwise each merge would write the
/// result of the previous one again.
const SKEW_MAX: u64 = 8;
/// No object counts as smaller: about a footer. Otherwise many without events and one with some would not be of similar size.
const SMALL_BYTES: u64 = 4_096;

/// An object that is merged: its next events.
struct Input {
    object: Opened,
    later: Later,
    next_group: usize,
    rows: IntoIter<ArchivedEvent>,
}

/// The next unmerged event of an input. It orders in reverse, so that a max-heap yields the first row.
struct Front {
    event: ArchivedEvent,
    input: usize,
}

/// What identifies a sequence of events.
#[derive(Default)]
struct Digest(DefaultHasher);

impl Archive {
    /// Merges objects of a slice into one: many of similar size in an open slice, any two or more that fit in one that
    /// `is_closed`, of which all events are archived. Returns how many objects it has deleted; 0: there was nothing to merge.
    ///
    /// # Errors
    /// [`ArchiveError::Damaged`]: an input is damaged. Nothing is replaced. [`ArchiveError::Gone`]: another merge has been faster.
    pub async fn merge(&self, namespace: &str, slice_ms: u64, is_closed: bool) -> Result<u64, ArchiveError> {
        let folder = name::slice(namespace, slice_ms)?;
        let enough = if is_closed { 2 } else { MERGED_MAX };
        let all_if_enough = |listed: &[Listed]| {
            let all = 0..u64::MAX;
            (listed.len() >= enough).then_some(all).into_iter().collect::<Vec<Range<u64>>>()
        };
        let objects = self.reader.open(namespace, slice_ms, all_if_enough).await?.all()?;
        let bytes: Vec<u64> = objects.iter().map(|object| object.footer.bytes().max(SMALL_BYTES)).collect();
        let chosen = chosen(&bytes, is_closed).and_then(|chosen| with_overlapping(&objects, chosen));
        let Some(chosen) = chosen else { return Ok(0) };
        let replaced: Vec<Opened> = chosen.into_iter().map(|number| objects[number].clone()).collect();
        let (encoded, merged) = merged(&self.reader, &replaced).await?;
        let check = move |stored: &Stored| {
            let mut read = Digest::default();
            stored.each_group(|rows| {
                rows.iter().for_each(|event| read.add(event));
                Ok(())
            })?;
            if read.finish() == merged {
                Ok(())
            } else {
                Err(stored.damaged("its events are not those that were merged"))
            }
        };
        let path = self.put(&folder, encoded, check).await?;
        // A merge that died before it deleted them has left the object that this one has written again.
        let gone = replaced.into_iter().map(|object| object.path).filter(move |replaced| *replaced != path);
        self.delete_all(iter(gone.map(Ok).collect::<Vec<_>>()).boxed()).await
    }
}

/// Which objects to merge, of those of a slice in the order of time, by their bytes.
fn chosen(bytes: &[u64], is_closed: bool) -> Option<Range<usize>> {
    let sum = |range: &Range<usize>| bytes[range.clone()].iter().sum::<u64>();
    if !is_closed {
        let is_even = |range: &Range<usize>| {
            let sum = sum(range);
            let most = bytes[range.clone()].iter().max().copied().unwrap_or_default();
            sum <= BYTES_MAX && most <= (sum / MERGED_MAX as u64).saturating_mul(SKEW_MAX)
        };
        return (0..=bytes.len().checked_sub(MERGED_MAX)?).map(|from| from..from + MERGED_MAX).find(is_even);
    }
    let from_here = |from: usize| {
        let ends = (from + 2..=bytes.len().min(from + MERGED_MAX)).map(|to| from..to);
        ends.take_while(|range| sum(range) <= BYTES_MAX).last()
    };
    (0..bytes.len()).find_map(from_here)
}

/// The chosen objects, and all whose spans overlap theirs, directly or through others. If one were left out, the merged object
/// could count as written after it, and win where it should lose. `None`: there are too many.
fn with_overlapping(objects: &[Opened], chosen: Range<usize>) -> Option<BTreeSet<usize>> {
    let mut all: BTreeSet<usize> = chosen.collect();
    loop {
        let spans: Vec<ShardSpan> = all.iter().flat_map(|number| &objects[*number].footer.spans).copied().collect();
        let overlaps =
            |object: &Opened| object.footer.spans.iter().any(|one| spans.iter().any(|other| one.overlaps(other)));
        let more: Vec<usize> =
            (0..objects.len()).filter(|number| !all.contains(number) && overlaps(&objects[*number])).collect();
        if more.is_empty() {
            return Some(all);
        }
        all.extend(more);
        if all.len() > 2 * MERGED_MAX {
            return None;
        }
    }
}

/// The merged object, and the digest of its events.
async fn merged(reader: &Reader, objects: &[Opened]) -> Result<(Encoded, u64), ArchiveError> {
    let input = |object: &Opened| Input {
        object: object.clone(),
        later: Later::than(object, objects),
        next_group: 0,
        rows: Vec::new().into_iter(),
    };
    let mut inputs: Vec<Input> = objects.iter().map(input).collect();
    let mut fronts = BinaryHeap::new();
    for (number, input) in inputs.iter_mut().enumerate() {
        fronts.extend(input.next(reader).await?.map(|event| Front { event, input: number }));
    }
    let has_labels = objects.iter().any(|object| object.footer.has_labels);
    let (mut encoder, mut digest, mut rows) =
        (Encoder::new(has_labels)?, Digest::default(), Vec::with_capacity(GROUP_ROWS));
    while let Some(Front { event, input }) = fronts.pop() {
        fronts.extend(inputs[input].next(reader).await?.map(|event| Front { event, input }));
        digest.add(&event);
        rows.push(event);
        if rows.len() == GROUP_ROWS || fronts.is_empty() {
            let group = std::mem::replace(&mut rows, Vec::with_capacity(GROUP_ROWS));
            let grown = tokio::task::spawn_blocking(move || {
                encoder.group(&group)?;
                Ok::<_, ArchiveError>(encoder)
            });
            encoder = grown.await??;
        }
    }
    let written_ms = objects.iter().map(|object| object.name.written_ms).max().unwrap_or_default();
    let spans = united(objects.iter().flat_map(|object| &object.footer.spans).copied().collect());
    let encoded = tokio::task::spawn_blocking(move || encoder.finish(&spans, written_ms)).await??;
    Ok((encoded, digest.finish()))
}

/// The same times in as few spans as possible.
fn united(mut spans: Vec<ShardSpan>) -> Vec<ShardSpan> {
    spans.sort_by_key(|span| (span.shard, span.from_ms));
    let mut united: Vec<ShardSpan> = Vec::new();
    for span in spans {
        match united.last_mut().filter(|last| last.shard == span.shard && span.from_ms <= last.to_ms) {
            Some(last) => last.to_ms = last.to_ms.max(span.to_ms),
            None => united.push(span),
        }
    }
    united
}

impl Input {
    /// Its next event that no later input replaces.
    async fn next(&mut self, reader: &Reader) -> Result<Option<ArchivedEvent>, ArchiveError> {
        loop {
            let later = &self.later;
            if let Some(event) = self.rows.find(|event| later.leaves(event.shard, event.time_ms)) {
                return Ok(Some(event));
            }
            if self.next_group == self.object.footer.groups.len() {
                return Ok(None);
            }
            self.rows = reader.events(&self.object, self.next_group, |_| true).await?.into_iter();
            self.next_group += 1;
        }
    }
}

impl Digest {
    fn add(&mut self, event: &ArchivedEvent) {
        event.hash(&mut self.0);
    }

    fn finish(self) -> u64 {
        self.0.finish()
    }
}

impl Ord for Front {
    fn cmp(&self, other: &Front) -> Ordering {
        key(&other.event).cmp(&key(&self.event))
    }
}

impl PartialOrd for Front {
    fn partial_cmp(&self, other: &Front) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Front {
    fn eq(&self, other: &Front) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Front {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n15_an_open_slice_merges_many_of_similar_size_and_a_closed_one_all_that_fit() {
        let (some, many) = (vec![10; MERGED_MAX - 1], vec![10; MERGED_MAX]);
        assert_eq!(chosen(&some, false), None);
        assert_eq!(chosen(&many, false), Some(0..MERGED_MAX));
        let behind_a_large_one = [vec![10_000], many.clone()].concat();
        assert_eq!(chosen(&behind_a_large_one, false), Some(1..MERGED_MAX + 1));
        assert_eq!(chosen(&[vec![10_000], some.clone()].concat(), false), None);
        assert_eq!(chosen(&vec![BYTES_MAX / 4; MERGED_MAX], false), None, "too large together");
        assert_eq!(chosen(&[10_000, 10], true), Some(0..2));
        assert_eq!(chosen(&[10], true), None);
        assert_eq!(chosen(&vec![10; 3 * MERGED_MAX], true), Some(0..MERGED_MAX));
        assert_eq!(chosen(&[BYTES_MAX, BYTES_MAX / 2, 1, 1, BYTES_MAX], true), Some(1..4));
        assert_eq!(chosen(&[BYTES_MAX, 1, BYTES_MAX], true), None);
    }

    #[test]
    fn n15_spans_that_touch_become_one() {
        let span = |shard, from_ms, to_ms| ShardSpan { shard, from_ms, to_ms };
        let spans = vec![span(1, 5, 9), span(0, 4, 8), span(0, 0, 4), span(1, 0, 2), span(0, 5, 6)];
        assert_eq!(united(spans), [span(0, 0, 8), span(1, 0, 2), span(1, 5, 9)]);
    }
}
