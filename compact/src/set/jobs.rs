//! Background work: in bounded steps on the engine's thread, and as jobs for a thread that may wait for a disk.

use super::rising::{Body, Part, Rising};
use super::{CounterSet, Tables};
use crate::cold::{
    ColdTable, Entry, FileId, MergeJob, Merged, Overlay, PAGE_BYTES, PageIndex, Replaced, Unsorted, write_sorted,
};
use crate::hash::Hash;
use crate::record::Record;
use crate::table::Table;
use std::sync::Arc;

/// Groups that one step moves.
const GROUPS_STEP: usize = 32;
/// Segments that one step frees.
const SEGMENTS_STEP: usize = 8;
/// Writes that no file has, in percent of a file's records, from which a merge is worth it.
const MERGE_PERCENT: u64 = 5;

/// Work for a thread that writes a file.
#[derive(Debug)]
pub enum Job {
    /// Write the records of a table.
    Spill(SpillJob),
    /// Write the next file of the cold table with this serial.
    Merge(u32, MergeJob),
}

/// A table to be written. Drop it before the answer is given to the set.
#[derive(Clone, Debug)]
pub struct SpillJob {
    /// The serial of the table.
    pub serial: u32,
    table: Arc<Table>,
    seed: u64,
}

impl SpillJob {
    /// Writes the records in the order of their ids.
    pub fn write<E>(
        &self,
        file: FileId,
        write: &mut impl FnMut(&[u8; PAGE_BYTES]) -> Result<(), E>,
    ) -> Result<PageIndex, E> {
        write_sorted(self, file, write)
    }
}

impl Unsorted for SpillJob {
    fn visit(&self, visit: &mut dyn FnMut(u64, u64)) {
        for group in 0..self.table.geometry().groups {
            self.table.for_each_in_group(group, self.seed, |id, _| visit(id, 0));
        }
        for (id, _) in self.table.extend.iter() {
            visit(id, 0);
        }
    }

    fn record(&self, id: u64, _place: u64) -> Record {
        let hash = Hash::of(id, self.seed);
        self.table.record(id, hash, self.table.find(id, hash))
    }
}

impl CounterSet {
    /// A bounded piece of background work, some 100 µs at most. Returns whether there is more.
    pub fn step(&mut self, now_ms: u64) -> bool {
        let forgotten = self.tokens.forget(self.options.token_window_ms, now_ms);
        let mut more = forgotten | self.cache.step();
        for _ in 0..GROUPS_STEP {
            let seed = self.shape.seed;
            let split = match &mut self.tables {
                Tables::Random(random) => random.advance_any(seed),
                Tables::Rising(_) => false,
            };
            let moved = split || self.convert_a_group();
            more |= moved;
            if !moved {
                break;
            }
        }
        more | self.free_some() | self.preallocate()
    }

    /// Frees a few segments of tables that are no longer needed.
    fn free_some(&mut self) -> bool {
        let left = match &mut self.tables {
            Tables::Rising(rising) => &mut rising.left,
            Tables::Random(random) => &mut random.left,
        };
        let Some(table) = left.last_mut() else { return false };
        if !(0..SEGMENTS_STEP).all(|_| table.free_segment()) {
            left.pop();
        }
        true
    }

    /// Allocates a segment of a spare table.
    fn preallocate(&mut self) -> bool {
        let Tables::Rising(rising) = &mut self.tables else { return false };
        let wanted = self.options.tables_preallocated as usize;
        if rising.spares.iter_mut().any(Table::preallocate) {
            return true;
        }
        if rising.spares.len() < wanted && !rising.parts.is_empty() {
            rising.spares.push(self.shape.table(0));
            return true;
        }
        let unwanted = rising.spares.len().min(wanted);
        let unwanted = rising.spares.split_off(unwanted);
        rising.left.extend(unwanted);
        false
    }

    /// Work for a thread: one spill at a time, and merges. `None`: nothing is due.
    pub fn next_job(&mut self) -> Option<Job> {
        let is_over = self.options.memory_max > 0 && self.memory_bytes() > self.options.memory_max as usize;
        let seed = self.shape.seed;
        let Tables::Rising(rising) = &mut self.tables else { return None };
        if is_over && let Some(job) = rising.freeze_lowest(seed) {
            return Some(Job::Spill(job));
        }
        rising.parts.iter_mut().find_map(|part| match &mut part.body {
            Body::Cold(cold) if cold.overlay_percent() >= MERGE_PERCENT => {
                cold.begin_merge().map(|job| Job::Merge(part.serial, job))
            }
            _ => None,
        })
    }

    /// Reads a table from its file from now on. Returns the memory that the host may free on another thread; `None`: no such table
    /// is being written, and the file is of no use.
    pub fn finish_spill(
        &mut self,
        serial: u32,
        file: FileId,
        name: String,
        index: PageIndex,
    ) -> Option<impl Send + use<>> {
        let part = self.part_of(serial)?;
        match std::mem::replace(&mut part.body, Body::Cold(ColdTable::new(file, name, index))) {
            Body::Frozen(table, overlay, _) => {
                if let Body::Cold(cold) = &mut part.body {
                    cold.take_overlay(overlay);
                }
                Some(table)
            }
            other => {
                part.body = other;
                None
            }
        }
    }

    /// Gives up writing a table: it stays in memory, with its later writes above it, until a later job succeeds.
    pub fn abort_spill(&mut self, serial: u32) {
        if let Some(Part { body: Body::Frozen(_, _, is_written), .. }) = self.part_of(serial) {
            *is_written = false;
        }
    }

    /// Takes over what a merge has written. Returns the file that is of no use now, with memory that the host may free on another
    /// thread: the earlier one, or (`Err`) the new one.
    pub fn finish_merge(&mut self, serial: u32, name: String, merged: Merged) -> Result<Replaced, Box<Merged>> {
        match self.part_of(serial) {
            Some(Part { body: Body::Cold(cold), .. }) => cold.finish_merge(name, merged),
            _ => Err(Box::new(merged)),
        }
    }

    /// Gives up a merge; a later one has its writes too.
    pub fn abort_merge(&mut self, serial: u32) {
        if let Some(Part { body: Body::Cold(cold), .. }) = self.part_of(serial) {
            cold.abort_merge();
        }
    }

    fn part_of(&mut self, serial: u32) -> Option<&mut Part> {
        match &mut self.tables {
            Tables::Rising(rising) => rising.parts.iter_mut().find(|part| part.serial == serial),
            Tables::Random(_) => None,
        }
    }

    /// The memory of all slots that may move, for the engine's defragmentation.
    pub fn segments_mut(&mut self) -> Vec<&mut Box<[u8]>> {
        match &mut self.tables {
            Tables::Rising(rising) => {
                rising.parts.iter_mut().filter_map(Part::hot).flat_map(Table::segments_mut).collect()
            }
            Tables::Random(random) => random.tables_mut().into_iter().flat_map(Table::segments_mut).collect(),
        }
    }

    /// The files of the cold tables, with their names.
    pub fn files(&self) -> Vec<(FileId, String)> {
        let Tables::Rising(rising) = &self.tables else { return Vec::new() };
        let file = |part: &Part| match &part.body {
            Body::Cold(cold) => Some((cold.file(), cold.name().to_owned())),
            _ => None,
        };
        rising.parts.iter().filter_map(file).collect()
    }
}

impl Part {
    fn hot(&mut self) -> Option<&mut Table> {
        match &mut self.body {
            Body::Hot(table) => Some(table),
            _ => None,
        }
    }
}

impl Rising {
    /// Freezes the hot table with the lowest ids, or offers again the frozen one that could not be written. The last table stays: it
    /// gets the new ids.
    fn freeze_lowest(&mut self, seed: u64) -> Option<SpillJob> {
        let count = self.parts.len().saturating_sub(1);
        let lowest = self.parts[..count].iter_mut().find(|part| !matches!(part.body, Body::Cold(_)))?;
        if let Body::Frozen(_, _, true) = lowest.body {
            return None;
        }
        let (table, overlay) = match std::mem::replace(&mut lowest.body, Body::Moving) {
            Body::Hot(table) => (Arc::new(table), Overlay::default()),
            Body::Frozen(table, overlay, _) => (table, overlay),
            Body::Cold(_) | Body::Moving => unreachable!("it is hot or frozen"),
        };
        lowest.body = Body::Frozen(table.clone(), overlay, true);
        Some(SpillJob { serial: lowest.serial, table, seed })
    }
}

/// The record that an overlay has for an id. Above slots, all its entries are whole records.
pub(super) fn absolute(overlay: &Overlay, id: u64) -> Option<&Record> {
    match overlay.get(id) {
        Some(Entry::Absolute(record)) => Some(record),
        _ => None,
    }
}
