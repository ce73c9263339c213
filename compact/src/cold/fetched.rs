//! What the host has read from files for one command.

use super::{FileId, Page, PageFault, PageRef};
use crate::hash::Hash;
use crate::record::Record;
use hashbrown::HashTable;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A page that a command needs, and what for. In the order of files and pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// The page.
    pub page: PageRef,
    /// The id whose record the command needs. `None`: it needs the page as a whole.
    pub id: Option<u64>,
}

/// Pages that were read, records that were searched on pages, or why there are none; and records of the cache. A file never changes, so
/// what was read of it is true whatever the set does meanwhile. Without content it takes no memory.
#[derive(Debug, Default)]
pub struct Fetched {
    pages: BTreeMap<PageRef, Result<Page, PageFault>>,
    records: HashTable<Found>,
    /// The state of the files to which the records belong, and how many records are expected. Fewer come if a page could not be read, or
    /// if an id was counted twice.
    awaited: Option<(Arc<()>, usize)>,
}

/// What the search for an id in a file gave, or what the cache had.
#[derive(Debug)]
pub(crate) struct Found {
    file: FileId,
    id: u64,
    /// A record of zeros: the file has none.
    pub(super) record: Result<Record, PageFault>,
    /// Whether it comes from the cache.
    pub(super) is_cached: bool,
}

impl Found {
    fn hash(file: FileId, id: u64) -> u64 {
        // The number of a file is random, so no client can choose ids that collide.
        Hash::of(id, file.0).bits()
    }

    fn is(&self, file: FileId, id: u64) -> bool {
        self.id == id && self.file == file
    }
}

impl Fetched {
    /// Nothing was read.
    pub const fn none() -> Fetched {
        Fetched { pages: BTreeMap::new(), records: HashTable::new(), awaited: None }
    }

    /// What reading and [opening](Page::open) a page gave, for these needs, all of this page: the records of their ids if each need has
    /// one, else the page. The search takes as long as the rest of a command, so it is the work of a reader thread too.
    pub fn of(page: PageRef, needs: &[Need], read: Result<Page, PageFault>) -> Fetched {
        let mut fetched = Fetched::none();
        let ids: Option<Vec<u64>> = needs.iter().map(|need| need.id).collect();
        match (ids, read) {
            (Some(ids), Ok(content)) if !ids.is_empty() => {
                for id in ids {
                    let record = content.find(id).map(Option::unwrap_or_default);
                    fetched.add(Found { file: page.file, id, record, is_cached: false });
                }
            }
            (_, read) => fetched.insert(page, read),
        }
        fetched
    }

    /// Adds what reading and [opening](Page::open) a page gave.
    pub fn insert(&mut self, page: PageRef, read: Result<Page, PageFault>) {
        self.pages.insert(page, read);
    }

    /// Adds other pages and records. The larger table of records is kept, and the smaller one is moved into it.
    pub fn append(&mut self, mut other: Fetched) {
        self.pages.append(&mut other.pages);
        if other.records.len() > self.records.len() {
            std::mem::swap(&mut self.records, &mut other.records);
        }
        other.records.into_iter().for_each(|found| self.add(found));
        self.awaited = self.awaited.take().or(other.awaited);
    }

    fn add(&mut self, found: Found) {
        let hash = Found::hash(found.file, found.id);
        match self.records.find_mut(hash, |other| other.is(found.file, found.id)) {
            Some(other) => *other = found,
            None => drop(self.records.insert_unique(hash, found, |found| Found::hash(found.file, found.id))),
        }
    }

    /// What reading this page gave, if it was read as a whole, or could not be.
    pub fn get(&self, page: PageRef) -> Option<&Result<Page, PageFault>> {
        self.pages.get(&page)
    }

    /// Adds a record that the cache has.
    pub(crate) fn add_cached(&mut self, file: FileId, id: u64, record: &Record) {
        self.add(Found { file, id, record: Ok(record.clone()), is_cached: true });
    }

    /// A command has located its ids, while the files are in this state: this many further records are to be read.
    pub(crate) fn await_more(&mut self, files: Arc<()>, count: usize) {
        self.awaited = Some((files, self.records.len() + count));
    }

    /// Whether all was read that a command needs, while the files are in this state.
    pub(crate) fn has_all(&self, files: &Arc<()>) -> bool {
        self.awaited.as_ref().is_some_and(|(state, count)| Arc::ptr_eq(state, files) && self.records.len() >= *count)
    }

    /// What is known of an id in a file.
    pub(crate) fn found(&self, file: FileId, id: u64) -> Option<&Found> {
        if self.records.is_empty() {
            return None;
        }
        self.records.find(Found::hash(file, id), |found| found.is(file, id))
    }

    /// The record that was found for an id in a file.
    pub(crate) fn record(&self, file: FileId, id: u64) -> Option<&Record> {
        self.found(file, id).and_then(|found| found.record.as_ref().ok())
    }

    /// How many pages and records there are.
    pub fn len(&self) -> usize {
        self.pages.len() + self.records.len()
    }

    /// Whether nothing was read.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl FromIterator<(PageRef, Result<Page, PageFault>)> for Fetched {
    fn from_iter<I: IntoIterator<Item = (PageRef, Result<Page, PageFault>)>>(pages: I) -> Fetched {
        Fetched { pages: pages.into_iter().collect(), ..Fetched::none() }
    }
}
