//! Folds the pages of a file and the overlays into what they are together: for a merge, a dump, a scan.

use super::fault::{Fault, Faults};
use super::overlay::{Entry, Overlay, entry_of};
use super::{FileId, Page, PageFault, PageIndex};
use crate::record::Record;
use crate::refusal::Damage;

/// Ids of one step of a fold, and ranges whose records are lost, at most: as many as a page has records.
pub(crate) const FOLD_STEP: usize = 1_024;

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

    /// Folds a stretch: its records and the damaged ranges that begin in it, in order. `read` is what reading its page gave, `None` if
    /// there is no page. Returns the fault of the page. `Err`: it could not be read now, is not known as damaged, and nothing was
    /// visited.
    pub(crate) fn fold(
        &self,
        stretch: u32,
        read: Option<&Result<Page, PageFault>>,
        visit: &mut impl FnMut(Folded),
    ) -> Result<Option<PageFault>, PageFault> {
        let mut from = 0;
        loop {
            match self.fold_from(stretch, from, FOLD_STEP, read, visit)? {
                (_, Some(next)) => from = next,
                (fault, None) => return Ok(fault),
            }
        }
    }

    /// The same from an id on, in a time that does not depend on how much was written: visits up to `most` ids and ranges, [`FOLD_STEP`] at
    /// most. Also returns the id where the next step begins, if the stretch has more.
    pub(crate) fn fold_from(
        &self,
        stretch: u32,
        from: u64,
        most: usize,
        read: Option<&Result<Page, PageFault>>,
        visit: &mut impl FnMut(Folded),
    ) -> Result<(Option<PageFault>, Option<u64>), PageFault> {
        let (first, last) = self.stretch(stretch);
        let records = read.map_or(Ok(Vec::new()), |read| records(self.index, stretch, read));
        let (records, fault) = match records {
            Ok(records) => (records, None),
            Err(unread @ PageFault::Unread(_)) if !self.faults.has_page(self.file, stretch, first, last) => {
                return Err(unread);
            }
            Err(fault) => (Vec::new(), Some(fault)),
        };
        let from = from.max(first);
        // One may begin before, and one is met by the next step. One that ends right before this step divides what the page adds, as it
        // did in the step before.
        let mut faults = self.faults.part(from.saturating_sub(1).max(first), last, self.file, most + 3);
        if let (Some(_), Some((first, last))) = (&fault, self.index.range(stretch)) {
            faults.add(first, last, &self.page_damage(stretch));
        }
        Ok((fault, self.fold_ids((from, last), most, records, &faults, visit)))
    }

    /// What a damaged page of this file is recorded as.
    pub(crate) fn page_damage(&self, page: u32) -> Fault {
        Fault::of_page(self.file, self.name, page)
    }

    /// Visits up to `most` of the ids and the begins of ranges. Returns the next one.
    fn fold_ids(
        &self,
        (first, last): (u64, u64),
        most: usize,
        records: Vec<(u64, Record)>,
        faults: &Faults,
        visit: &mut impl FnMut(Folded),
    ) -> Option<u64> {
        // Of each layer so many that no later one is among those of this step.
        let of_layer = |layer: &&'a Overlay| layer.ids(first..=last).take(most + 1);
        let mut written: Vec<u64> = self.layers.iter().flat_map(of_layer).collect();
        written.sort_unstable();
        written.dedup();
        let (mut records, mut written) = (records.into_iter().peekable(), written.into_iter().peekable());
        while records.next_if(|(base, _)| *base < first).is_some() {}
        let mut begins = faults.begins(first, last).peekable();
        for step in 0.. {
            let nexts = [records.peek().map(|next| next.0), written.peek().copied(), begins.peek().map(|next| next.0)];
            let id = nexts.into_iter().flatten().min()?;
            if step == most {
                return Some(id);
            }
            if let Some((_, Some(damage))) = begins.next_if(|(begin, _)| *begin == id) {
                visit(Folded::Damaged(damage));
            }
            let base = records.next_if(|(base, _)| *base == id).map(|(_, record)| record);
            let entry = written.next_if_eq(&id).and_then(|id| entry_of(&self.layers, id));
            self.fold_id(id, base, entry, faults, visit);
        }
        None
    }

    fn fold_id(
        &self,
        id: u64,
        base: Option<Record>,
        entry: Option<Entry>,
        faults: &Faults,
        visit: &mut impl FnMut(Folded),
    ) {
        let mut record = match faults.at(id) {
            Some((_, _, Fault::Damaged { .. })) => {
                return entry.into_iter().for_each(|entry| visit(Folded::Held(id, entry)));
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
