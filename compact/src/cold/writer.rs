//! Writes records in rising order of their ids as the pages of a file.

use super::draft::Draft;
use super::{FileId, PAGE_BYTES, PageIndex, PageRef};
use crate::record::Record;

/// Makes the pages of a file.
pub struct PageWriter {
    file: FileId,
    draft: Draft,
    index: PageIndex,
    last: Option<u64>,
    page: Box<[u8; PAGE_BYTES]>,
}

impl PageWriter {
    /// The pages of a new file. Its number is random and was never used.
    pub fn new(file: FileId) -> PageWriter {
        PageWriter {
            file,
            draft: Draft::default(),
            index: PageIndex::default(),
            last: None,
            page: Box::new([0; PAGE_BYTES]),
        }
    }

    /// Adds a record, and gives a page to `write` if one is complete. A record of zeros is dropped: it equals a missing one.
    /// After an error of `write` the file is of no use.
    ///
    /// # Panics
    /// If the id is not above the one before: pages that are not in order would give wrong numbers.
    pub fn push<E>(
        &mut self,
        id: u64,
        record: &Record,
        write: &mut impl FnMut(&[u8; PAGE_BYTES]) -> Result<(), E>,
    ) -> Result<(), E> {
        assert!(self.last.is_none_or(|last| last < id), "ids of a file rise");
        self.last = Some(id);
        if record.is_zero() || self.draft.add(id, record.values()) {
            return Ok(());
        }
        self.flush(write)?;
        assert!(self.draft.add(id, record.values()), "a page has room for any record");
        Ok(())
    }

    /// Writes the last page, and returns the index of the file.
    pub fn finish<E>(mut self, write: &mut impl FnMut(&[u8; PAGE_BYTES]) -> Result<(), E>) -> Result<PageIndex, E> {
        self.flush(write)?;
        self.index.shrink();
        Ok(self.index)
    }

    /// The index of the pages that were written so far.
    pub(crate) fn index(&self) -> &PageIndex {
        &self.index
    }

    /// The records that wait for the next page.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (u64, Record)> + '_ {
        self.draft.records().map(|(id, values)| (id, Record::new(values.to_vec())))
    }

    fn flush<E>(&mut self, write: &mut impl FnMut(&[u8; PAGE_BYTES]) -> Result<(), E>) -> Result<(), E> {
        let Some((first, last, records)) = self.draft.range() else { return Ok(()) };
        self.page.fill(0);
        self.draft.write(PageRef { file: self.file, page: self.index.pages() }, &mut self.page);
        self.index.add(first, last, records);
        write(&self.page)
    }
}
