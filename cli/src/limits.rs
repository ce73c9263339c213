//! Bounds of the server that the command line keeps by splitting its calls.

/// Items of one call, at most.
pub(crate) const BATCH_ITEMS_MAX: usize = 1_000;
/// Entries of one page of a list.
pub(crate) const PAGE_ITEMS_MAX: u32 = 1_000;
