//! A merge: the file and its frozen overlay become the next file, on a thread of the host.

use super::fault::{Fault, Faults};
use super::fold::{Folded, View};
use super::overlay::Overlay;
use super::{FileId, PAGE_BYTES, Page, PageFault, PageIndex, PageRef, PageWriter};
use crate::schema::Schema;
use std::sync::Arc;

/// What a thread needs to write the next file of a cold table.
#[derive(Clone, Debug)]
pub struct MergeJob {
    pub(super) file: FileId,
    pub(super) name: String,
    pub(super) index: Arc<PageIndex>,
    pub(super) frozen: Arc<Overlay>,
    pub(super) faults: Arc<Faults>,
    /// As it was when the merge began. A field that is retired meanwhile is left to the next merge: its number is never used again.
    pub(super) schema: Schema,
}

/// A file that a merge has written.
#[derive(Clone, Debug)]
pub struct Merged {
    pub(super) file: FileId,
    pub(super) from: FileId,
    pub(super) index: Arc<PageIndex>,
    /// The damaged pages, with their range of ids. Nothing of them is in the new file.
    pub(super) damaged: Vec<(u32, u64, u64)>,
    /// What was written to damaged ranges. It stays in the overlay.
    pub(super) held: Overlay,
    /// The faults when the merge began.
    pub(super) faults: Arc<Faults>,
    /// What they are with the new file, unless they have changed since.
    pub(super) after: Arc<Faults>,
}

/// A file that a table no longer needs. The rest of it may be large: drop it on another thread than the engine's.
#[derive(Debug)]
pub struct Replaced {
    /// The file.
    pub file: FileId,
    /// Its name.
    pub name: String,
    pub(super) _rest: (Arc<Overlay>, Arc<PageIndex>, [Arc<Faults>; 2]),
}

impl MergeJob {
    /// The file that is read.
    pub fn file(&self) -> FileId {
        self.file
    }

    /// The name of the file that is read.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Pages of the file that is read.
    pub fn pages(&self) -> u32 {
        self.index.pages()
    }

    /// Reads all pages in order (`read` also [opens](Page::open) them) and writes those of the new file. A page that is damaged is
    /// left out; its ids are refused from then on, until they are repaired. So are the values of retired fields, and records that have
    /// no others. An error of `write`, or a page that could not be read, ends the merge.
    pub fn run<E: From<PageFault>>(
        &self,
        file: FileId,
        read: &mut impl FnMut(PageRef) -> Result<Page, PageFault>,
        write: &mut impl FnMut(&[u8; PAGE_BYTES]) -> Result<(), E>,
    ) -> Result<Merged, E> {
        let view = View::new(self.file, &self.name, &self.index, vec![&self.frozen], &self.faults);
        let mut writer = PageWriter::new(file);
        let (mut damaged, mut held) = (Vec::new(), Overlay::default());
        for stretch in 0..view.stretches() {
            let place = PageRef { file: self.file, page: stretch };
            let page = (stretch < self.index.pages()).then(|| read(place));
            let mut written = Ok(());
            let fault = view.fold(stretch, page.as_ref(), &mut |folded| match folded {
                Folded::Record(id, record) if written.is_ok() => {
                    let record = self.schema.without_retired(record);
                    if !record.is_zero() {
                        written = writer.push(id, &record, write);
                    }
                }
                Folded::Held(id, entry) => held.insert(id, entry),
                Folded::Record(..) | Folded::Damaged(_) => {}
            })?;
            written?;
            if let (Some(_), Some((first, last))) = (fault, self.index.range(stretch)) {
                damaged.push((stretch, first, last));
            }
        }
        let index = Arc::new(writer.finish(write)?);
        let mut merged =
            Merged { file, from: self.file, index, damaged, held, faults: self.faults.clone(), after: Arc::default() };
        merged.after = Arc::new(merged.faults_after(&self.faults, &self.name));
        Ok(merged)
    }
}

impl Merged {
    /// The file that was written.
    pub fn file(&self) -> FileId {
        self.file
    }

    /// The faults of the table that reads the new file. What the job has judged is replaced by its judgement: the pages of the old
    /// file, and the ranges that were repaired before.
    pub(super) fn faults_after(&self, now: &Faults, old_name: &str) -> Faults {
        let mut faults = now.without(self.from);
        for (page, first, last) in &self.damaged {
            faults.add(*first, *last, &Fault::of_page(self.from, old_name, *page));
        }
        faults.forget_repaired(&self.faults);
        faults
    }

    /// Pages of the old file that are damaged.
    pub fn damaged_pages(&self) -> impl Iterator<Item = u32> + '_ {
        self.damaged.iter().map(|(page, _, _)| *page)
    }

    /// The index of the new file.
    pub fn index(&self) -> &PageIndex {
        &self.index
    }
}
