//! The indices of a group of queues. The first group has all queues that no other one has.

use super::hours::HourIndices;
use super::names::IndexNames;
use super::options::Rollover;

/// The indices of one prefix.
pub(super) struct IndexGroup {
    /// The queues whose names begin so, unless a longer prefix of another group fits; empty: all other queues.
    pub(super) queue_prefix: String,
    pub(super) names: IndexNames,
    pub(super) retention_ms: u64,
    pub(super) rollover: Rollover,
    /// Whether a topic has only the events of this group, so that it has watermarks for itself.
    pub(super) has_topic: bool,
    pub(super) hours: HourIndices,
}
