//! Ids of a table that have no slot: those that wait for its first memory, and strays.

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

/// Whole records of strays. They move to the next table all at once, however many they are.
#[derive(Clone, Debug)]
pub(super) struct Far {
    pub(super) ids: Dictionary,
    /// No id is below this one: most searches skip the dictionary.
    pub(super) from: u64,
}
