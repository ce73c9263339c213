//! The pages that the host has read for one command.

use super::{Page, PageFault, PageRef};
use std::collections::BTreeMap;

/// Pages that were read, or why they could not be. Without pages it takes no memory.
#[derive(Debug, Default)]
pub struct Fetched {
    pages: BTreeMap<PageRef, Result<Page, PageFault>>,
}

impl Fetched {
    /// Nothing was read.
    pub const fn none() -> Fetched {
        Fetched { pages: BTreeMap::new() }
    }

    /// Adds what reading and [opening](Page::open) a page gave.
    pub fn insert(&mut self, page: PageRef, read: Result<Page, PageFault>) {
        self.pages.insert(page, read);
    }

    /// What reading this page gave, if it was read.
    pub fn get(&self, page: PageRef) -> Option<&Result<Page, PageFault>> {
        self.pages.get(&page)
    }

    /// How many pages were read.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether no page was read.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }
}

impl FromIterator<(PageRef, Result<Page, PageFault>)> for Fetched {
    fn from_iter<I: IntoIterator<Item = (PageRef, Result<Page, PageFault>)>>(pages: I) -> Fetched {
        Fetched { pages: pages.into_iter().collect() }
    }
}
