//! Which object is right. A span may be in several objects; for a shard and a time, the one that was written last is.

use crate::event::ShardSpan;
use crate::reader::Opened;
use std::ops::Range;

/// What later objects say instead of an object.
pub(crate) struct Later(Vec<ShardSpan>);

impl Later {
    /// Of one object, among all that a call considers.
    pub(crate) fn than(object: &Opened, all: &[Opened]) -> Later {
        let is_later = |other: &&Opened| other.name > object.name && other.name.overlaps(&object.name.times_ms());
        Later(all.iter().filter(is_later).flat_map(|other| other.footer.spans.iter().copied()).collect())
    }

    /// Whether the object itself says what a shard has at a time.
    pub(crate) fn leaves(&self, shard: u16, time_ms: u64) -> bool {
        !self.0.iter().any(|span| span.has(shard, time_ms))
    }
}

/// The object that says what a shard has at a time.
pub(crate) fn right(objects: &[Opened], shard: u16, time_ms: u64) -> Option<&Opened> {
    let has = |object: &&Opened| {
        object.name.times_ms().contains(&time_ms) && object.footer.spans.iter().any(|span| span.has(shard, time_ms))
    };
    objects.iter().filter(has).max_by(|one, other| one.name.cmp(&other.name))
}

/// The first of these times that no object has of a shard.
pub(crate) fn gap<'a>(objects: impl Iterator<Item = &'a Opened>, shard: u16, times_ms: Range<u64>) -> Option<u64> {
    let all = objects.flat_map(|object| &object.footer.spans).filter(|span| span.shard == shard);
    let mut spans: Vec<ShardSpan> = all.copied().collect();
    spans.sort_unstable_by_key(|span| span.from_ms);
    let mut next_ms = times_ms.start;
    for span in spans.iter().filter(|span| span.to_ms > times_ms.start) {
        if span.from_ms > next_ms || next_ms >= times_ms.end {
            break;
        }
        next_ms = next_ms.max(span.to_ms);
    }
    (next_ms < times_ms.end).then_some(next_ms)
}
