//! A cold table: what is known of its file, and what was written since.

use super::fault::{Fault, Faults};
use super::fold::View;
use super::merge::{MergeJob, Merged, Replaced};
use super::overlay::{Entry, Overlay, entry_of};
use super::{Fetched, FileId, Page, PageFault, PageIndex, PageRef, RecordCache};
use crate::record::Record;
use crate::refusal::{Damage, Refusal};
use std::sync::Arc;

/// The records of one table, in a file.
#[derive(Debug)]
pub(crate) struct ColdTable {
    file: FileId,
    name: String,
    index: Arc<PageIndex>,
    /// Writes since the last merge began.
    live: Overlay,
    /// Writes before that, which no file has yet. Empty unless a merge runs, or has failed.
    frozen: Arc<Overlay>,
    merging: bool,
    faults: Faults,
    /// Entries that the last merge could not take over, because their range is damaged.
    held: usize,
}

/// Why a record below the overlays is not known.
enum Unknown {
    Refused(Refusal),
    /// Its page cannot be trusted.
    Failed(u32),
}

impl ColdTable {
    /// A table whose records are all in this file.
    pub(crate) fn new(file: FileId, name: String, index: PageIndex) -> ColdTable {
        ColdTable {
            file,
            name,
            index: Arc::new(index),
            live: Overlay::default(),
            frozen: Arc::default(),
            merging: false,
            faults: Faults::default(),
            held: 0,
        }
    }

    /// Puts an overlay above the file: what was written to the table while its file was.
    pub(crate) fn take_overlay(&mut self, overlay: Overlay) {
        debug_assert!(self.live.is_empty());
        self.live = overlay;
    }

    /// The file.
    pub(crate) fn file(&self) -> FileId {
        self.file
    }

    /// The name of the file, as the host knows it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The index of the file: its pages and records, without later writes.
    pub(crate) fn index(&self) -> &PageIndex {
        &self.index
    }

    /// The page to read before this id can be read. `None`: the answer, or a refusal, is known.
    pub(crate) fn page_needed(&self, id: u64, cache: &RecordCache) -> Option<PageRef> {
        let page = self.page_of(id)?;
        (!self.is_absolute(id) && cache.peek(self.file, id).is_none()).then_some(page)
    }

    /// The record of an id. [`Refusal::Cold`]: its page is needed and was not fetched. A page that fails is remembered as damaged.
    pub(crate) fn read(&mut self, id: u64, fetched: &Fetched, cache: &mut RecordCache) -> Result<Record, Refusal> {
        let mut below = || match self.frozen.get(id) {
            Some(entry) => entry.over(|| self.base(id, fetched, cache)),
            None => self.base(id, fetched, cache),
        };
        let read = match self.live.get(id) {
            Some(entry) => entry.over(&mut below),
            None => below(),
        };
        read.map_err(|unknown| match unknown {
            Unknown::Refused(refusal) => refusal,
            Unknown::Failed(page) => Refusal::Damaged(self.note_damage(page, id)),
        })
    }

    /// Gives an id a whole record; one of zeros deletes it.
    pub(crate) fn write(&mut self, id: u64, record: Record) {
        self.live.insert(id, Entry::Absolute(record));
    }

    /// Adds to fields of an id, whether or not its record is known.
    pub(crate) fn add_unread(&mut self, id: u64, deltas: &[(u8, i64)]) {
        self.change(id, |entry| deltas.iter().for_each(|&(number, delta)| entry.add(number, delta)));
    }

    /// Sets fields of an id, whether or not its record is known.
    pub(crate) fn set_unread(&mut self, id: u64, values: &[(u8, i64)]) {
        self.change(id, |entry| values.iter().for_each(|&(number, value)| entry.set(number, value)));
    }

    /// Gives an id what a dump had for it ([`Folded::Held`](super::Folded)).
    pub(crate) fn restore(&mut self, id: u64, entry: Entry) {
        self.change(id, |below| below.append(&entry));
    }

    /// Refuses the ids that a dump says are lost.
    pub(crate) fn add_damage(&mut self, damage: &Damage) {
        let fault = Fault::Damaged { origin: None, file: damage.file.clone(), page: damage.page };
        self.faults.add(damage.first, damage.last, &fault);
    }

    /// The ids that are refused.
    pub(crate) fn damage(&self) -> impl Iterator<Item = Damage> + '_ {
        self.faults.damaged(0, u64::MAX)
    }

    /// Whether the bytes of a page are what was written, each of its records included. Remembers the answer, also if it changed.
    pub(crate) fn check(&mut self, page: u32, read: &Result<Page, PageFault>) -> Result<(), Damage> {
        let Some((first, last)) = self.index.range(page) else { return Ok(()) };
        let fault = self.view().page_fault(page, read);
        self.faults.forget_page(self.file, page);
        match fault {
            None => Ok(()),
            Some(_) => {
                let damage = self.note_damage(page, first);
                Err(Damage { first, last, ..damage })
            }
        }
    }

    /// Gives the damaged ids of a range these records, and the others of them 0. Ids whose records are known do not change: they
    /// are later than any copy. Returns how many records were taken.
    pub(crate) fn repair(&mut self, first: u64, last: u64, records: impl IntoIterator<Item = (u64, Record)>) -> u64 {
        let parts = self.faults.repair(first, last);
        let is_part = |id: u64| parts.iter().any(|&(first, last)| (first..=last).contains(&id));
        let layers = [&self.live, &*self.frozen];
        let written = parts.iter().flat_map(|&(first, last)| layers.map(|layer| layer.ids(first..=last)));
        let written: Vec<u64> = written.flatten().collect();
        self.held = self.held.saturating_sub(written.len());
        for &id in &written {
            // The file is not read for these ids again, also not for what a merge that runs has put into it.
            if let Some(Entry::Absolute(record)) = entry_of(&[&self.live, &self.frozen], id) {
                self.write(id, record);
            }
        }
        let mut taken = 0;
        for (id, record) in records {
            if is_part(id) && !self.is_absolute(id) {
                self.write(id, record);
                taken += 1;
            }
        }
        // What was added to a lost record is part of its copy; without a copy, the record is 0.
        for id in written {
            if !self.is_absolute(id) {
                self.write(id, Record::default());
            }
        }
        taken
    }

    /// Writes that no file has, in percent of the records of the file: what a merge is due by.
    pub(crate) fn overlay_percent(&self) -> u64 {
        let entries = (self.live.len() + self.frozen.len()).saturating_sub(self.held) as u64;
        entries * 100 / self.index.records().max(1)
    }

    /// Ids with writes that no file has.
    pub(crate) fn overlay_len(&self) -> usize {
        self.live.len() + self.frozen.len()
    }

    /// Memory of the table, in a time that does not depend on its size.
    pub(crate) fn memory_bytes(&self) -> usize {
        let overlays = self.live.memory_bytes() + self.frozen.memory_bytes();
        size_of::<ColdTable>()
            + self.name.capacity()
            + self.index.memory_bytes()
            + overlays
            + self.faults.memory_bytes()
    }

    /// The content of the table as it is now, for a dump or a scan.
    pub(crate) fn view(&self) -> View<'_> {
        View::new(self.file, &self.name, &self.index, vec![&self.live, &self.frozen], &self.faults)
    }

    /// Whether a merge runs.
    pub(crate) fn is_merging(&self) -> bool {
        self.merging
    }

    /// Freezes the overlay, for a thread that folds it into a new file. `None`: a merge runs. After a merge that failed, the next
    /// one has the same overlay; what was written meanwhile has to wait.
    pub(crate) fn begin_merge(&mut self) -> Option<MergeJob> {
        if self.merging {
            return None;
        }
        self.merging = true;
        if self.frozen.is_empty() {
            self.frozen = Arc::new(std::mem::take(&mut self.live));
        }
        let (index, frozen) = (self.index.clone(), self.frozen.clone());
        Some(MergeJob { file: self.file, name: self.name.clone(), index, frozen, faults: self.faults.clone() })
    }

    /// Reads from the file of a merge from now on. `Err`: the merge was not this table's, or was given up; its file is of no use.
    pub(crate) fn finish_merge(&mut self, name: String, merged: Merged) -> Result<Replaced, Box<Merged>> {
        if !self.merging || merged.from != self.file {
            return Err(Box::new(merged));
        }
        // What the job has judged is replaced by its judgement: the pages of the old file, and the ranges that were repaired before.
        let mut faults = self.faults.without(self.file);
        let old = self.view();
        merged.damaged.iter().for_each(|&(page, first, last)| faults.add(first, last, &old.page_damage(page)));
        faults.forget_repaired(&merged.faults);
        self.faults = faults;
        self.held = merged.held.len();
        let frozen = std::mem::take(&mut self.frozen);
        for (id, mut entry) in merged.held {
            if let Some(later) = self.live.get(id) {
                entry.append(later);
            }
            self.live.insert(id, entry);
        }
        self.merging = false;
        let index = std::mem::replace(&mut self.index, merged.index);
        let file = std::mem::replace(&mut self.file, merged.file);
        Ok(Replaced { file, name: std::mem::replace(&mut self.name, name), _rest: (frozen, index) })
    }

    /// Gives up a merge. Its overlay stays below the live one until another merge succeeds.
    pub(crate) fn abort_merge(&mut self) {
        self.merging = false;
    }

    fn change(&mut self, id: u64, change: impl FnOnce(&mut Entry)) {
        // A record that is known without its page becomes absolute: it needs the page never again.
        if self.live.get(id).is_none() {
            let known = match self.frozen.get(id) {
                Some(entry) => entry.over(|| self.base_in_memory(id).ok_or(())).ok(),
                None => self.base_in_memory(id),
            };
            known.into_iter().for_each(|record| self.live.insert(id, Entry::Absolute(record)));
        }
        self.live.change(id, change);
    }

    /// The page with the base of a record. `None`: the file has none, or is not read.
    fn page_of(&self, id: u64) -> Option<PageRef> {
        let page = self.index.page_of(id).filter(|_| self.faults.at(id).is_none())?;
        Some(PageRef { file: self.file, page })
    }

    fn base_in_memory(&self, id: u64) -> Option<Record> {
        let is_known = self.page_of(id).is_none() && self.faults.damage_at(id).is_none();
        is_known.then(Record::default)
    }

    /// The record below the overlays.
    fn base(&self, id: u64, fetched: &Fetched, cache: &mut RecordCache) -> Result<Record, Unknown> {
        if let Some(damage) = self.faults.damage_at(id) {
            return Err(Unknown::Refused(Refusal::Damaged(damage)));
        }
        let Some(place) = self.page_of(id) else { return Ok(Record::default()) };
        if let Some(record) = cache.get(self.file, id) {
            return Ok(record.clone());
        }
        let page = fetched.get(place).ok_or(Unknown::Refused(Refusal::Cold))?;
        let page = page.as_ref().map_err(|_| Unknown::Failed(place.page))?;
        let record = page.find(id).map_err(|_| Unknown::Failed(place.page))?.unwrap_or_default();
        cache.keep(self.file, id, record.clone());
        Ok(record)
    }

    /// Whether the overlays know the whole record.
    fn is_absolute(&self, id: u64) -> bool {
        [&self.live, &*self.frozen].into_iter().any(|layer| matches!(layer.get(id), Some(Entry::Absolute(_))))
    }

    /// Remembers that a page is damaged, and returns what that means for an id.
    fn note_damage(&mut self, page: u32, id: u64) -> Damage {
        let (first, last) = self.index.range(page).unwrap_or((id, id));
        let fault = self.view().page_damage(page);
        self.faults.add(first, last, &fault);
        let unknown = || Damage { file: self.name.clone(), page, first, last };
        self.faults.damage_at(id).unwrap_or_else(unknown)
    }
}
