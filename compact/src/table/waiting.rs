//! The ids that wait for the first memory of a table.

use super::dictionary::Dictionary;

/// What the first table has instead of memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Start {
    pub(super) ids: Dictionary,
    /// New ids of the table so far.
    pub(super) new_ids: u64,
    /// Whether the memory is ready: new ids take slots, and those that wait follow.
    pub(super) is_ready: bool,
}
