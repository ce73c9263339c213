//! Folds the pages of a file and the overlays into what they are together: for a merge, a dump, a scan.

use super::fault::{Fault, Faults};
use super::overlay::{Entry, Overlay, entry_of};
use super::{FileId, Page, PageFault, PageIndex};
use crate::record::Record;
use crate::refusal::Damage;

/// A part of a cold table's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Folded {
    /// These records are lost.
    Damaged(Damage),
    /// The record of an id; not of zeros.
    Record(u64, Record),
    /// What was written to an id in a damaged range.
    Held(u64, Entry),
}

/// A cold table as it is at one time. Its content is folded in stretches: all ids from the first one of a page to the next page's.
pub(crate) struct View<'a> {
    file: FileId,
    name: &'a str,
    index: &'a PageIndex,
    layers: Vec<&'a Overlay>,
    faults: &'a Faults,
}

/// Why a page of a file cannot be trusted, if so.
pub(super) fn page_fault(index: &PageIndex, page: u32, read: &Result<Page, PageFault>) -> Option<PageFault> {
    records(index, page, read).err()
}

fn records(index: &PageIndex, page: u32, read: &Result<Page, PageFault>) -> Result<Vec<(u64, Record)>, PageFault> {
    let records = read.as_ref().map_err(Clone::clone)?.records()?;
    let (first, last) = index.range(page).ok_or(PageFault::Misplaced)?;
    if records.first().is_none_or(|(id, _)| *id != first) || records.last().is_none_or(|(id, _)| *id > last) {
        return Err(PageFault::Malformed);
    }
    Ok(records)
}

impl<'a> View<'a> {
    /// `layers`: overlays, the latest first. A page of the file that was damaged before is judged again.
    pub(crate) fn new(
        file: FileId,
        name: &'a str,
        index: &'a PageIndex,
        layers: Vec<&'a Overlay>,
        faults: &'a Faults,
    ) -> View<'a> {
        View { file, name, index, layers, faults }
    }

    /// How many stretches there are: one for each page, and one if there is no page.
    pub(crate) fn stretches(&self) -> u32 {
        self.index.pages().max(1)
    }

    /// The first and last id of a stretch. All stretches together have all ids.
    pub(crate) fn stretch(&self, stretch: u32) -> (u64, u64) {
        let first = if stretch == 0 { 0 } else { self.index.range(stretch).map_or(u64::MAX, |range| range.0) };
        let last = self.index.range(stretch + 1).map_or(u64::MAX, |range| range.0 - 1);
        (first, last)
    }

    /// Folds a stretch: damaged ranges that begin in it, then its records in order. `read` is what reading its page gave, `None` if
    /// there is no page. Returns the fault of the page. `Err`: it could not be read now, is not known as damaged, and nothing was
    /// visited.
    pub(crate) fn fold(
        &self,
        stretch: u32,
        read: Option<&Result<Page, PageFault>>,
        visit: &mut impl FnMut(Folded),
    ) -> Result<Option<PageFault>, PageFault> {
        let (first, last) = self.stretch(stretch);
        let records = read.map_or(Ok(Vec::new()), |read| records(self.index, stretch, read));
        let (records, fault) = match records {
            Ok(records) => (records, None),
            Err(unread @ PageFault::Unread(_)) if !self.faults.has_page(self.file, stretch, first, last) => {
                return Err(unread);
            }
            Err(fault) => (Vec::new(), Some(fault)),
        };
        let mut faults = self.faults.part(first, last, self.file);
        if let (Some(_), Some((first, last))) = (&fault, self.index.range(stretch)) {
            faults.add(first, last, &self.page_damage(stretch));
        }
        faults.damaged(first, last).for_each(|damage| visit(Folded::Damaged(damage)));
        self.fold_records(first, last, records, &faults, visit);
        Ok(fault)
    }

    /// What a damaged page of this file is recorded as.
    pub(crate) fn page_damage(&self, page: u32) -> Fault {
        Fault::of_page(self.file, self.name, page)
    }

    fn fold_records(
        &self,
        first: u64,
        last: u64,
        records: Vec<(u64, Record)>,
        faults: &Faults,
        visit: &mut impl FnMut(Folded),
    ) {
        let mut written: Vec<u64> = self.layers.iter().flat_map(|layer| layer.ids(first..=last)).collect();
        written.sort_unstable();
        written.dedup();
        let (mut records, mut written) = (records.into_iter().peekable(), written.into_iter().peekable());
        loop {
            let id = match (records.peek(), written.peek()) {
                (None, None) => return,
                (Some((base, _)), Some(entry)) => *base.min(entry),
                (Some((base, _)), None) => *base,
                (None, Some(entry)) => *entry,
            };
            let base = records.next_if(|(base, _)| *base == id).map(|(_, record)| record);
            let entry = written.next_if_eq(&id).and_then(|id| entry_of(&self.layers, id));
            let mut record = match faults.at(id) {
                Some((_, _, Fault::Damaged { .. })) => {
                    entry.into_iter().for_each(|entry| visit(Folded::Held(id, entry)));
                    continue;
                }
                Some((_, _, Fault::Repaired)) => Record::default(),
                None => base.unwrap_or_default(),
            };
            match entry {
                Some(Entry::Absolute(absolute)) => record = absolute,
                Some(Entry::Patch(patch)) => patch.apply(&mut record),
                None => {}
            }
            if !record.is_zero() {
                visit(Folded::Record(id, record));
            }
        }
    }
}
