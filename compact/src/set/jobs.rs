//! Background work: in bounded steps on the engine's thread, and as jobs for a thread that may wait for a disk.

use super::rising::{Body, Part, Rising};
use super::show::shelf_bytes;
use super::{CounterSet, Tables};
use crate::cold::{
    ColdTable, FileId, MergeJob, Merged, Overlay, PAGE_BYTES, PageIndex, Replaced, Unsorted, write_sorted,
};
use crate::hash::Hash;
use crate::record::Record;
use crate::table::Table;
use std::sync::Arc;

/// Groups that one step moves.
const GROUPS_STEP: usize = 32;
/// Writes that no file has, in thousandths of a file's records, from which a merge is worth it.
const MERGE_PERMILLE: u64 = 50;
/// The same for a set that is over `MEMORY_MAX`, so that it does not merge all the time; and the memory of these writes.
const PRESSED_MERGE_PERMILLE: u64 = 5;
const PRESSED_MERGE_BYTES: usize = 64 << 10;

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
        for (id, _) in self.table.slotless() {
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
        self.step_without_memory(now_ms) | self.cache.settle() | self.start_first() | self.preallocate()
    }

    /// The same, without what allocates tables: the host has no memory left.
    pub fn step_without_memory(&mut self, now_ms: u64) -> bool {
        let forgotten = self.tokens.forget(self.options.token_window_ms, now_ms);
        let mut more = forgotten | self.cache.step();
        for _ in 0..GROUPS_STEP {
            let split = match &mut self.tables {
                Tables::Random(random) => random.advance_any(&self.shape),
                Tables::Rising(_) => false,
            };
            let moved = split || self.convert_a_group();
            more |= moved;
            if !moved {
                break;
            }
        }
        let left = match &mut self.tables {
            Tables::Rising(rising) => &mut rising.left,
            Tables::Random(random) => &mut random.left,
        };
        more | left.free_some()
    }

    /// Makes a segment of the first table ready, or gives slots to some ids that wait for them.
    fn start_first(&mut self) -> bool {
        let first = match &mut self.tables {
            Tables::Rising(Rising { parts, .. }) => match parts.first_mut() {
                Some(Part { body: Body::Hot(table), .. }) => Some(table),
                _ => None,
            },
            Tables::Random(random) => random.only(),
        };
        first.is_some_and(|table| table.start_step(&self.shape.numbers))
    }

    /// Makes a segment ready that a table will need.
    fn preallocate(&mut self) -> bool {
        let rising = match &mut self.tables {
            Tables::Rising(rising) => rising,
            Tables::Random(random) => return random.preallocate(),
        };
        let wanted = rising.wanted_spares(self.options.tables_preallocated as usize, &self.shape);
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
    ///
    /// A set that is over `MEMORY_MAX` does what gives back the most: it moves its lowest table to a file, or merges the cold table with
    /// the largest overlay. So writes to cold ids are bounded too, once no table is left to move.
    pub fn next_job(&mut self) -> Option<Job> {
        let memory_max = self.options.memory_max as usize;
        let (seed, other_bytes) = (self.shape.seed, self.other_bytes());
        let Tables::Rising(rising) = &mut self.tables else { return None };
        let survey = Survey::of(rising);
        // No file has strays. If they alone were over the limit, each table would move to a file as soon as the next one begins.
        let strays = rising.strays_bytes();
        let bytes = survey.bytes + other_bytes - strays + strays.min(memory_max / 2);
        let is_over = memory_max > 0 && bytes > memory_max;
        let pressed = survey.largest.filter(|_| is_over && !survey.is_merging);
        let merge = |rising: &mut Rising, place: usize| match &mut rising.parts[place] {
            Part { body: Body::Cold(cold), serial, .. } => {
                cold.begin_merge(&self.schema).map(|job| Job::Merge(*serial, job))
            }
            _ => None,
        };
        match (pressed, survey.lowest.filter(|_| is_over)) {
            (Some((bytes, place)), Some((table_bytes, _))) if bytes >= table_bytes => return merge(rising, place),
            (_, Some((_, place))) => {
                if let Some(job) = rising.freeze(place, seed) {
                    return Some(Job::Spill(job));
                }
            }
            (Some((_, place)), None) => return merge(rising, place),
            _ => {}
        }
        let merge = survey.due.and_then(|place| merge(rising, place));
        merge.or_else(|| survey.unwritten.and_then(|place| rising.freeze(place, seed)).map(Job::Spill))
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
        self.files = Arc::default();
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
        self.files = Arc::default();
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
            Tables::Rising(rising) => {
                let place = rising.parts.partition_point(|part| part.serial < serial);
                rising.parts.get_mut(place).filter(|part| part.serial == serial)
            }
            Tables::Random(_) => None,
        }
    }

    /// Gives `each` the memory of slots that may move, segment by segment, until it returns `false`: for the engine's defragmentation.
    /// Begins at a cursor, 0 for the first segment, and returns the next one; 0: there is no more.
    pub fn segments(&mut self, cursor: u64, mut each: impl FnMut(&mut Box<[u8]>) -> bool) -> u64 {
        // A serial, and one more than the segments of its table that were visited: so that no cursor but the first is 0.
        let (mut from, mut skip) = match cursor {
            0 => (u32::MAX, 0),
            _ => ((cursor >> 32) as u32, (cursor as u32).saturating_sub(1)),
        };
        while let Some((serial, table)) = self.tables.up_to(from) {
            let mut visited = if serial == from { skip } else { 0 };
            for segment in table.into_iter().flat_map(Table::segments_mut).skip(visited as usize) {
                visited += 1;
                if !each(segment) {
                    return u64::from(serial) << 32 | u64::from(visited + 1);
                }
            }
            let Some(next) = serial.checked_sub(1) else { break };
            (from, skip) = (next, 0);
        }
        0
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

impl Tables {
    /// The table with the greatest serial up to this one. `None` in its place: its slots do not change, or are moving to other tables.
    pub(super) fn up_to(&mut self, serial: u32) -> Option<(u32, Option<&mut Table>)> {
        #[cfg(test)]
        super::tests::visited();
        match self {
            Tables::Rising(rising) => {
                let place = rising.parts.partition_point(|part| part.serial <= serial).checked_sub(1)?;
                let part = &mut rising.parts[place];
                let table = match &mut part.body {
                    Body::Hot(table) => Some(table),
                    _ => None,
                };
                Some((part.serial, table))
            }
            Tables::Random(random) => random.table_up_to(serial),
        }
    }
}

/// What one pass over all parts finds. It is one, because a set may have thousands.
#[derive(Default)]
struct Survey {
    /// Memory of all tables.
    bytes: usize,
    /// The place of the lowest table that is in memory, with its bytes. The last table stays: it gets the new ids.
    lowest: Option<(usize, usize)>,
    /// The place of a table whose slots no longer change, and that could not be written: each write to it takes memory until it is,
    /// also if `MEMORY_MAX` no longer needs it.
    unwritten: Option<usize>,
    /// The place of the first table with so many writes that a merge is due in any case.
    due: Option<usize>,
    /// The place of the table with the largest overlay that is worth a merge, with the bytes of the overlay.
    largest: Option<(usize, usize)>,
    /// Whether a merge runs.
    is_merging: bool,
}

impl Survey {
    fn of(rising: &Rising) -> Survey {
        let (mut survey, last) = (Survey::default(), rising.parts.len().saturating_sub(1));
        for (place, part) in rising.parts.iter().enumerate() {
            let bytes = shelf_bytes(&part.body.shelf());
            survey.bytes += bytes;
            if matches!(part.body, Body::Frozen(_, _, false)) {
                survey.unwritten = survey.unwritten.or(Some(place));
            }
            match &part.body {
                Body::Cold(cold) if cold.is_merging() => survey.is_merging = true,
                Body::Cold(cold) => survey.add_overlay(place, cold.overlay_permille(), cold.overlay_bytes()),
                _ if survey.lowest.is_none() && place < last => survey.lowest = Some((bytes, place)),
                _ => {}
            }
        }
        survey
    }

    fn add_overlay(&mut self, place: usize, permille: u64, bytes: usize) {
        if permille >= MERGE_PERMILLE {
            self.due = self.due.or(Some(place));
        }
        let is_worth_it = permille >= PRESSED_MERGE_PERMILLE && bytes >= PRESSED_MERGE_BYTES;
        if is_worth_it && self.largest.is_none_or(|(largest, _)| largest < bytes) {
            self.largest = Some((bytes, place));
        }
    }
}

impl Rising {
    /// Freezes a hot table, or offers a frozen one again that could not be written. `None`: it is being written.
    fn freeze(&mut self, place: usize, seed: u64) -> Option<SpillJob> {
        let lowest = &mut self.parts[place];
        if let Body::Frozen(_, _, true) = lowest.body {
            return None;
        }
        let (table, overlay, was_hot) = match std::mem::replace(&mut lowest.body, Body::Moving) {
            Body::Hot(table) => (Arc::new(table), Overlay::default(), true),
            Body::Frozen(table, overlay, _) => (table, overlay, false),
            Body::Cold(_) | Body::Moving => unreachable!("it is hot or frozen"),
        };
        lowest.body = Body::Frozen(table.clone(), overlay, true);
        let serial = lowest.serial;
        if was_hot {
            self.cooled();
        }
        Some(SpillJob { serial, table, seed })
    }
}
