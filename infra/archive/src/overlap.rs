//! Which object is right. A span may be in several objects; for a shard and a time, the one that was written last is.

use crate::event::ShardSpan;
use crate::reader::Opened;

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
