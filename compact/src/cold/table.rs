//! A cold table: what is known of its file, and what was written since.

use super::fault::{Fault, Faults};
use super::fetched::Found;
use super::fold::{View, page_fault};
use super::merge::{MergeJob, Merged, Replaced};
use super::overlay::{Entry, Overlay, entry_of};
use super::{Fetched, FileId, Page, PageFault, PageIndex, PageRef, RecordCache};
use crate::record::Record;
use crate::refusal::{Damage, Refusal};
use crate::schema::Schema;
use std::borrow::Cow;
use std::collections::BTreeMap;
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
    below: Below,
    /// Shared with a merge that runs.
    faults: Arc<Faults>,
    /// Entries that the last merge could not take over, because their range is damaged.
    held: usize,
}

/// Sizes of the index and of the frozen overlay. They are kept here, because a pass over all tables would miss the processor's cache for each of both.
#[derive(Clone, Copy, Debug, Default)]
struct Below {
    pages: u32,
    records: u64,
    index_bytes: usize,
    frozen: usize,
    frozen_bytes: usize,
}

impl Below {
    fn of(index: &PageIndex, frozen: &Overlay) -> Below {
        let (pages, records, index_bytes) = (index.pages(), index.records(), index.memory_bytes());
        Below { pages, records, index_bytes, frozen: frozen.len(), frozen_bytes: frozen.memory_bytes() }
    }
}

/// Where the record below the overlays is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Base<'a> {
    /// No page is needed: the answer, or a refusal, is known.
    Known,
    /// The cache has it, at least until the next command runs.
    Cached(&'a Record),
    /// This page has to be read first.
    OnPage(PageRef),
}

/// Where a command gets records from that are not in overlays.
pub(crate) struct Source<'a> {
    pub(crate) fetched: &'a Fetched,
    pub(crate) cache: &'a mut RecordCache,
    /// Whether the cache is to keep what was fetched: false for an id that is written, because its record is in the overlay from then on.
    pub(crate) keeps: bool,
}

/// What a repair changes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RepairWork {
    ranges: usize,
    written: usize,
}

impl RepairWork {
    /// Damaged ranges, and ids in them with an entry of an overlay, that one repair changes at most: some hundred µs of work.
    const RANGES_MAX: usize = 128;
    const WRITTEN_MAX: usize = 512;

    pub(crate) fn is_too_much(&self) -> bool {
        self.ranges > RepairWork::RANGES_MAX || self.written > RepairWork::WRITTEN_MAX
    }
}

/// Why a record below the overlays is not known.
enum Unknown {
    Refused(Refusal),
    /// Its page could not be read now.
    Unread(u32, String),
    /// Its page cannot be trusted.
    Failed(u32),
}

impl Unknown {
    fn of(page: u32, fault: &PageFault) -> Unknown {
        match fault {
            PageFault::Unread(why) => Unknown::Unread(page, why.clone()),
            _ => Unknown::Failed(page),
        }
    }
}

impl ColdTable {
    /// A table whose records are all in this file.
    pub(crate) fn new(file: FileId, name: String, index: PageIndex) -> ColdTable {
        ColdTable {
            file,
            name,
            below: Below::of(&index, &Overlay::default()),
            index: Arc::new(index),
            live: Overlay::default(),
            frozen: Arc::default(),
            merging: false,
            faults: Arc::default(),
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

    /// Pages of the file.
    pub(crate) fn pages(&self) -> u32 {
        self.below.pages
    }

    /// The stretch that an id is in, as [`View`] counts them.
    pub(crate) fn stretch_of(&self, id: u64) -> u32 {
        self.index.stretch_of(id)
    }

    /// Records of the file, without later writes.
    pub(crate) fn records(&self) -> u64 {
        self.below.records
    }

    /// Reads the memory that says of most ids that the overlays do not have them.
    pub(crate) fn touch_overlays(&self, id: u64) {
        self.live.touch(id);
        self.frozen.touch(id);
    }

    /// Where the record of an id below the overlays is, as far as a reader of the id has to know.
    pub(crate) fn base_of<'a>(&self, id: u64, fetched: &Fetched, cache: &'a RecordCache) -> Base<'a> {
        if fetched.found(self.file, id).is_some() {
            return Base::Known;
        }
        let Some(page) = self.page_of(id) else { return Base::Known };
        if fetched.get(page).is_some() || self.is_absolute(id) {
            return Base::Known;
        }
        cache.peek(self.file, id).map_or(Base::OnPage(page), Base::Cached)
    }

    /// Gives the record of an id to `with`. [`Refusal::Cold`]: its page is needed and was not fetched. A page that fails is remembered
    /// as damaged, but not one that could not be read ([`Refusal::Unreadable`]).
    pub(crate) fn read<T>(
        &mut self,
        id: u64,
        source: Source<'_>,
        with: impl FnOnce(&Record) -> T,
    ) -> Result<T, Refusal> {
        let unknown = match self.record(id, source) {
            Ok(record) => return Ok(with(&record)),
            Err(unknown) => unknown,
        };
        Err(match unknown {
            Unknown::Refused(refusal) => refusal,
            Unknown::Unread(page, why) => Refusal::Unreadable { file: self.name.clone(), page, why },
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
        Arc::make_mut(&mut self.faults).add(damage.first, damage.last, &fault);
    }

    /// The ids that are refused.
    #[cfg(test)]
    pub(crate) fn damage(&self) -> impl Iterator<Item = Damage> + '_ {
        self.faults.damaged(0, u64::MAX)
    }

    /// How many ranges of ids are refused.
    pub(crate) fn damaged_len(&self) -> usize {
        self.faults.damaged_len()
    }

    /// Whether the bytes of a page are what was written, each of its records included. Remembers the answer, also if it changed.
    /// A page that could not be read is neither, unless the caller says that it is damaged.
    pub(crate) fn check(
        &mut self,
        page: u32,
        read: &Result<Page, PageFault>,
        unread_is_damaged: bool,
    ) -> Result<(), Damage> {
        let Some((first, last)) = self.index.range(page) else { return Ok(()) };
        let fault = page_fault(&self.index, page, read);
        if matches!(fault, Some(PageFault::Unread(_))) && !unread_is_damaged {
            return Ok(());
        }
        if self.faults.has_page(self.file, page, first, last) {
            Arc::make_mut(&mut self.faults).forget_page(self.file, page, first, last);
        }
        match fault {
            None => Ok(()),
            Some(_) => {
                let damage = self.note_damage(page, first);
                Err(Damage { first, last, ..damage })
            }
        }
    }

    /// Whether an id of a page is known to be damaged.
    pub(crate) fn has_fault(&self, page: u32) -> bool {
        self.index.range(page).is_some_and(|(first, last)| self.faults.has_page(self.file, page, first, last))
    }

    /// Adds what a repair of a range would change, until it is too much for one command. Returns whether it is anything.
    pub(crate) fn count_repair(&self, first: u64, last: u64, work: &mut RepairWork) -> bool {
        let before = work.ranges;
        for (first, last) in self.faults.parts(first, last) {
            work.ranges += 1;
            for layer in [&self.live, &*self.frozen] {
                work.written += layer.ids(first..=last).take(RepairWork::WRITTEN_MAX + 1).count();
            }
            if work.is_too_much() {
                break;
            }
        }
        work.ranges > before
    }

    /// Gives the damaged ids of a range these records, and the others of them 0. Ids whose records are known do not change: they
    /// are later than any copy. Returns how many records were taken.
    pub(crate) fn repair(&mut self, first: u64, last: u64, records: &BTreeMap<u64, Record>) -> u64 {
        let parts = Arc::make_mut(&mut self.faults).repair(first, last);
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
        for (&id, record) in parts.iter().flat_map(|&(first, last)| records.range(first..=last)) {
            if !self.is_absolute(id) {
                self.write(id, record.clone());
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

    /// Writes that no file has, in thousandths of the records of the file: what a merge is due by.
    pub(crate) fn overlay_permille(&self) -> u64 {
        let entries = self.overlay_len().saturating_sub(self.held) as u64;
        entries * 1000 / self.records().max(1)
    }

    /// Ids with writes that no file has.
    pub(crate) fn overlay_len(&self) -> usize {
        self.live.len() + self.below.frozen
    }

    /// Memory of the writes that no file has.
    pub(crate) fn overlay_bytes(&self) -> usize {
        self.live.memory_bytes() + self.below.frozen_bytes
    }

    /// Memory of the table, in a time that does not depend on its size.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<ColdTable>()
            + self.name.capacity()
            + self.below.index_bytes
            + self.overlay_bytes()
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
    /// one has the same overlay; what was written meanwhile has to wait. The next file gets no values of fields that the schema has
    /// retired.
    pub(crate) fn begin_merge(&mut self, schema: &Schema) -> Option<MergeJob> {
        if self.merging {
            return None;
        }
        self.merging = true;
        if self.frozen.is_empty() {
            self.frozen = Arc::new(std::mem::take(&mut self.live));
            self.below = Below::of(&self.index, &self.frozen);
        }
        let (index, frozen, schema) = (self.index.clone(), self.frozen.clone(), schema.clone());
        Some(MergeJob { file: self.file, name: self.name.clone(), index, frozen, faults: self.faults.clone(), schema })
    }

    /// Reads from the file of a merge from now on. `Err`: the merge was not this table's, or was given up; its file is of no use.
    pub(crate) fn finish_merge(&mut self, name: String, merged: Merged) -> Result<Replaced, Box<Merged>> {
        if !self.merging || merged.from != self.file {
            return Err(Box::new(merged));
        }
        // A check or a repair during the merge is rare, and takes its time here.
        let after = match Arc::ptr_eq(&self.faults, &merged.faults) {
            true => merged.after,
            false => Arc::new(merged.faults_after(&self.faults, &self.name)),
        };
        let before = std::mem::replace(&mut self.faults, after);
        self.held = merged.held.len();
        let frozen = std::mem::take(&mut self.frozen);
        let mut held = merged.held;
        if held.len() > self.live.len() {
            held.append(std::mem::take(&mut self.live));
            self.live = held;
        } else {
            self.live.put_below(held);
        }
        self.merging = false;
        let index = std::mem::replace(&mut self.index, merged.index);
        self.below = Below::of(&self.index, &self.frozen);
        let file = std::mem::replace(&mut self.file, merged.file);
        Ok(Replaced {
            file,
            name: std::mem::replace(&mut self.name, name),
            _rest: (frozen, index, [before, merged.faults]),
        })
    }

    /// Gives up a merge. Its overlay stays below the live one until another merge succeeds.
    pub(crate) fn abort_merge(&mut self) {
        self.merging = false;
    }

    fn change(&mut self, id: u64, change: impl FnOnce(&mut Entry)) {
        // A record that is known without its page becomes absolute: it needs the page never again.
        if self.live.get(id).is_none() {
            let known = match self.frozen.get(id) {
                Some(entry) => {
                    entry.over(|| self.base_in_memory(id).map(Cow::Owned).ok_or(())).ok().map(Cow::into_owned)
                }
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

    fn record<'a>(&'a self, id: u64, source: Source<'a>) -> Result<Cow<'a, Record>, Unknown> {
        let below = || match self.frozen.get(id) {
            Some(entry) => entry.over(|| self.base(id, source)),
            None => self.base(id, source),
        };
        match self.live.get(id) {
            Some(entry) => entry.over(below),
            None => below(),
        }
    }

    /// The record below the overlays.
    fn base<'a>(&self, id: u64, source: Source<'a>) -> Result<Cow<'a, Record>, Unknown> {
        let Source { fetched, cache, keeps } = source;
        if let Some(damage) = self.faults.damage_at(id) {
            return Err(Unknown::Refused(Refusal::Damaged(damage)));
        }
        let found = fetched.found(self.file, id);
        // What was found is used without a search of the index. It is no answer where the file is not read any more.
        if let Some(Found { record: Ok(record), is_cached, .. }) = found
            && self.faults.at(id).is_none()
        {
            // The cache counts a hit, and keeps the record longer.
            if !is_cached || cache.get(self.file, id).is_none() {
                cache.missed(self.file, id, record, keeps);
            }
            return Ok(Cow::Borrowed(record));
        }
        let Some(place) = self.page_of(id) else { return Ok(Cow::default()) };
        if let Some(record) = cache.get(self.file, id) {
            return Ok(Cow::Owned(record.clone()));
        }
        let unknown = |fault: &PageFault| Unknown::of(place.page, fault);
        if let Some(Found { record: Err(fault), .. }) = found {
            return Err(unknown(fault));
        }
        let page = fetched.get(place).ok_or(Unknown::Refused(Refusal::Cold))?.as_ref().map_err(unknown)?;
        let record = page.find(id).map_err(|fault| unknown(&fault))?.unwrap_or_default();
        cache.missed(self.file, id, &record, keeps);
        Ok(Cow::Owned(record))
    }

    /// Whether the overlays know the whole record.
    fn is_absolute(&self, id: u64) -> bool {
        [&self.live, &*self.frozen].into_iter().any(|layer| matches!(layer.get(id), Some(Entry::Absolute(_))))
    }

    /// Remembers that a page is damaged, and returns what that means for an id.
    fn note_damage(&mut self, page: u32, id: u64) -> Damage {
        let (first, last) = self.index.range(page).unwrap_or((id, id));
        let fault = Fault::of_page(self.file, &self.name, page);
        Arc::make_mut(&mut self.faults).add(first, last, &fault);
        let unknown = || Damage { file: self.name.clone(), page, first, last };
        self.faults.damage_at(id).unwrap_or_else(unknown)
    }
}
