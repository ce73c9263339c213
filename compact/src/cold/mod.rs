//! Cold tables: the records of one table in an immutable file of pages, and what was written to them since.
//!
//! What lives here: the format of pages, the index of a file, the overlay of later writes, how both are folded into the next file
//! (a merge), and the cache of records that were read. What may not: files. The host reads and writes pages, and says what it read.
//!
//! How a read goes: the overlay, the faults, the index and the cache may know the answer ([`ColdTable::base_of`]). If not,
//! the host reads one page, a thread verifies it ([`Page::open`]) and searches it, and the command runs again with what was found
//! ([`Fetched`]).
//!
//! How a file is replaced: [`ColdTable::begin_merge`] freezes the overlay and gives a [`MergeJob`] to a thread of the host.
//! [`ColdTable::finish_merge`] takes the new file over. Both take a bounded time, whatever the size of the table.

mod bits;
mod cache;
mod code;
mod draft;
mod fault;
mod fetched;
mod filter;
mod fold;
mod index;
mod merge;
mod overlay;
mod page;
mod patch;
mod sorted;
mod table;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use cache::RecordCache;
pub use fetched::{Fetched, Need};
pub(crate) use fold::FOLD_STEP;
pub use fold::Folded;
pub use index::PageIndex;
pub use merge::{MergeJob, Merged, Replaced};
pub use overlay::Entry;
pub(crate) use overlay::Overlay;
pub use page::{Page, PageFault};
pub use patch::{Patch, PatchPart};
pub use sorted::{Unsorted, write_sorted};
pub(crate) use table::{Base, ColdTable, RepairWork, Source};
pub use writer::PageWriter;

/// Bytes of a page: one read of a disk.
pub const PAGE_BYTES: usize = 4096;

/// Identifies a file of pages: a random number, which each of its pages carries. It is never used again, so that a page of an older
/// file is recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// A page of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageRef {
    /// The file.
    pub file: FileId,
    /// The number of the page in the file, from 0.
    pub page: u32,
}

impl PageRef {
    /// Where the page begins in its file.
    pub fn offset(self) -> u64 {
        u64::from(self.page) * PAGE_BYTES as u64
    }
}
