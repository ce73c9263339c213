//! What `CT.INFO` and `CT.TABLES` show, and what `CT.CHECK` verifies.

use super::rising::Body;
use super::walk::{Cursor, Met, Shelf, WalkStep};
use super::{CounterSet, Tables};
use crate::cold::{Fetched, Folded, PageRef, RecordCache};
use crate::hash::Hash;
use crate::options::Order;
use crate::table::{Dictionary, Found, Table};
use std::sync::Arc;

/// A value that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Figure {
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}

impl From<u64> for Figure {
    fn from(number: u64) -> Figure {
        // The protocol has no greater number.
        i64::try_from(number).map_or_else(|_| Figure::Text(number.to_string()), Figure::Number)
    }
}

impl From<usize> for Figure {
    fn from(number: usize) -> Figure {
        Figure::from(number as u64)
    }
}

impl From<&str> for Figure {
    fn from(text: &str) -> Figure {
        Figure::Text(text.to_owned())
    }
}

/// Names and figures, in order.
pub type Figures = Vec<(&'static str, Figure)>;

/// Totals of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Tables in memory.
    pub hot_tables: usize,
    /// Tables in files.
    pub cold_tables: usize,
    /// Ids with a slot, an entry of a dictionary or a record in a file, also those whose fields are all 0. Ids that only the overlay of
    /// a cold table has are not among them.
    pub ids: u64,
    /// Records above tables whose slots or files do not change, of ids that may be in them or not: `ids` <= written ids <= `ids` +
    /// `overlay_ids`.
    pub overlay_ids: u64,
    /// Records in aux dictionaries.
    pub aux: u64,
    /// Ids in extend dictionaries.
    pub extend: u64,
    /// Bytes of memory.
    pub memory_bytes: usize,
    /// Bytes of files.
    pub file_bytes: u64,
    /// Ranges of ids that are refused as damaged.
    pub damaged: usize,
    /// Tokens that are remembered.
    pub tokens: usize,
    /// Records of files that were read from the cache.
    pub cache_hits: u64,
    /// Records of files that were read from a page.
    pub cache_misses: u64,
}

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, other: Totals) {
        self.hot_tables += other.hot_tables;
        self.cold_tables += other.cold_tables;
        self.ids += other.ids;
        self.overlay_ids += other.overlay_ids;
        self.aux += other.aux;
        self.extend += other.extend;
        self.memory_bytes += other.memory_bytes;
        self.file_bytes += other.file_bytes;
        self.damaged += other.damaged;
        self.tokens += other.tokens;
        self.cache_hits += other.cache_hits;
        self.cache_misses += other.cache_misses;
    }
}

impl CounterSet {
    /// Memory of the set.
    pub fn memory_bytes(&self) -> usize {
        let mut tables = 0;
        self.each_shelf(|shelf| tables += shelf_bytes(&shelf));
        tables + self.other_bytes()
    }

    /// Memory of the set without its tables.
    pub(super) fn other_bytes(&self) -> usize {
        let of_ranges = match &self.tables {
            Tables::Rising(rising) => rising.memory_bytes_without_parts(),
            Tables::Random(random) => random.left.memory_bytes(),
        };
        size_of::<CounterSet>() + of_ranges + self.tokens.memory_bytes() + self.cache.memory_bytes()
    }

    /// All tables in no order.
    fn each_shelf<'a>(&'a self, mut each: impl FnMut(Shelf<'a>)) {
        match &self.tables {
            Tables::Rising(rising) => rising.parts.iter().for_each(|part| each(part.body.shelf())),
            Tables::Random(random) => random.each_table(&mut |table, from| each(Shelf::Slots(table, from))),
        }
    }

    /// Whether tokens are remembered, which only time ends.
    pub fn has_tokens(&self) -> bool {
        self.tokens.len() > 0
    }

    /// Tables that [`CounterSet::totals`] visits.
    pub fn table_count(&self) -> usize {
        match &self.tables {
            Tables::Rising(rising) => rising.parts.len(),
            Tables::Random(random) => random.count(),
        }
    }

    /// Totals over all tables.
    pub fn totals(&self) -> Totals {
        let (cache_hits, cache_misses) = self.cache.counts();
        let (memory_bytes, tokens) = (self.other_bytes(), self.tokens.len());
        let mut totals = Totals { memory_bytes, tokens, cache_hits, cache_misses, ..Totals::default() };
        self.each_shelf(|shelf| {
            totals.memory_bytes += shelf_bytes(&shelf);
            totals.overlay_ids += match &shelf {
                Shelf::Slots(..) => 0,
                Shelf::Frozen(_, overlay) => overlay.len() as u64,
                Shelf::Cold(cold) => cold.overlay_len() as u64,
            };
            match shelf {
                Shelf::Slots(table, _) | Shelf::Frozen(table, _) => {
                    totals.hot_tables += 1;
                    totals.ids += table.used.saturating_sub(table.vacated) + table.extend_len() as u64;
                    totals.aux += table.aux.len() as u64;
                    totals.extend += table.extend_len() as u64;
                }
                Shelf::Cold(cold) => {
                    totals.cold_tables += 1;
                    totals.ids += cold.records();
                    totals.file_bytes += u64::from(cold.pages()) * crate::PAGE_BYTES as u64;
                    totals.damaged += cold.damaged_len();
                }
            }
        });
        totals
    }

    /// What `CT.INFO` shows.
    pub fn info(&self) -> Figures {
        let totals = self.totals();
        let mut figures: Figures = vec![
            ("schema", Figure::Text(self.schema_text())),
            ("ids", totals.ids.into()),
            ("overlay_ids", totals.overlay_ids.into()),
            ("memory_bytes", totals.memory_bytes.into()),
            ("record_bits", (self.schema.live().map(|(_, field)| u64::from(field.width)).sum::<u64>()).into()),
            ("hot_tables", totals.hot_tables.into()),
            ("cold_tables", totals.cold_tables.into()),
            ("file_bytes", totals.file_bytes.into()),
            ("aux_ids", totals.aux.into()),
            ("extend_ids", totals.extend.into()),
            ("damaged_ranges", totals.damaged.into()),
            ("tokens", totals.tokens.into()),
            ("cache_hits", totals.cache_hits.into()),
            ("cache_misses", totals.cache_misses.into()),
            ("converting", u64::from(self.behind.is_some()).into()),
            ("restoring", u64::from(self.is_restoring()).into()),
            ("order", if self.options.order == Order::Rising { "RISING" } else { "RANDOM" }.into()),
        ];
        figures.extend(self.options.list().into_iter().map(|(name, value)| (name, value.into())));
        figures
    }

    /// The live fields, as `CT.CREATE` takes them.
    pub fn schema_text(&self) -> String {
        let field =
            |field: &crate::Field| format!("{} {}{}", field.name, if field.signed { 'i' } else { 'u' }, field.width);
        self.schema.live().map(|(_, live)| field(live)).collect::<Vec<_>>().join(" ")
    }

    /// What `CT.TABLES` shows: at most so many tables, from the one with this serial on.
    pub fn tables(&self, from: u32, count: usize) -> Vec<Figures> {
        let figures = |Met { serial, first, shelf, .. }: Met<'_>| {
            let mut figures: Figures = Vec::with_capacity(TABLE_FIGURES);
            figures.extend([("serial", Figure::from(u64::from(serial))), ("first_id", first.into())]);
            match &shelf {
                Shelf::Slots(table, _) | Shelf::Frozen(table, _) => {
                    let is_frozen = matches!(shelf, Shelf::Frozen(..));
                    figures.extend([
                        ("state", if is_frozen { "spilling" } else { "hot" }.into()),
                        ("slots", table.geometry().slots().into()),
                        ("used", table.used.into()),
                        ("aux_ids", table.aux.len().into()),
                        ("extend_ids", table.extend_len().into()),
                        ("converting", u64::from(table.is_converting()).into()),
                    ]);
                }
                Shelf::Cold(cold) => figures.extend([
                    ("state", if cold.is_merging() { "merging" } else { "cold" }.into()),
                    ("file", cold.name().into()),
                    ("pages", u64::from(cold.pages()).into()),
                    ("records", cold.records().into()),
                    ("overlay_ids", cold.overlay_len().into()),
                    ("damaged_ranges", cold.damaged_len().into()),
                ]),
            }
            figures.push(("memory_bytes", shelf_bytes(&shelf).into()));
            figures
        };
        let (mut tables, mut serial) = (Vec::new(), Some(from));
        while let Some(met) = serial.filter(|_| tables.len() < count).and_then(|serial| self.shelf_from(serial)) {
            serial = met.next;
            tables.push(figures(met));
        }
        tables
    }

    /// Verifies one part of the set, and returns the next cursor (0: that was the last part) and what is wrong.
    ///
    /// # Errors
    /// This page is needed.
    pub fn check(&mut self, cursor: u128, fetched: &Fetched) -> Result<(u128, Vec<String>), PageRef> {
        self.check_part_at(cursor, fetched, false)
    }

    /// The same; a page that cannot be read is damaged from now on: an operator has given it up.
    ///
    /// # Errors
    /// This page is needed.
    pub fn give_up(&mut self, cursor: u128, fetched: &Fetched) -> Result<(u128, Vec<String>), PageRef> {
        self.check_part_at(cursor, fetched, true)
    }

    /// `marks`: a page that cannot be read is damaged from now on.
    fn check_part_at(&mut self, cursor: u128, fetched: &Fetched, marks: bool) -> Result<(u128, Vec<String>), PageRef> {
        let from = Cursor::from_number(cursor);
        let place = self.judge(from, fetched, marks);
        let mut seen = Vec::new();
        let mut faults = Vec::new();
        let step = self.walk(from, &mut |page| fetched.get(page).cloned(), &mut |folded| match folded {
            Folded::Record(id, record) => seen.push((id, record)),
            Folded::Damaged(damage) => faults.push(crate::Refusal::Damaged(damage).to_string()),
            Folded::Held(..) => {}
        });
        let next = match step {
            WalkStep::Page(page) => return Err(page),
            WalkStep::End => 0,
            WalkStep::Next(next) => next.number(),
            WalkStep::Unreadable(refusal, next) => {
                faults.push(refusal.to_string());
                next.map_or(0, Cursor::number)
            }
        };
        // The records do not replace those that commands have read, and a check says nothing of how well the cache serves.
        let cache = std::mem::replace(&mut self.cache, RecordCache::new(0));
        // Each record is found by its id, with the same values.
        for (id, record) in seen {
            let mut found = Vec::new();
            let expected: Vec<i64> = self.shape.numbers.iter().map(|number| record.get(*number)).collect();
            match self.read(id, fetched, &mut found) {
                Ok(()) if found == expected => {}
                Ok(()) => faults.push(format!("id {id} has {expected:?} in its table and reads {found:?}")),
                Err(refusal) => faults.push(format!("id {id} is in its table: {refusal}")),
            }
        }
        self.cache = cache;
        if let Some((place, serial)) = place.filter(|(_, serial)| from.is_begin_of(*serial)) {
            self.check_part(place, serial, &mut faults);
        }
        Ok((next, faults))
    }

    /// Remembers whether the page of this step is damaged, or forgets damage that is no longer there. Returns the place and the
    /// serial of the part of this step.
    fn judge(&mut self, from: Cursor, fetched: &Fetched, marks: bool) -> Option<(usize, u32)> {
        let Met { serial, place, .. } = self.shelf_from(from.serial())?;
        if let Some(Body::Cold(cold)) = self.tables.part_mut(place) {
            let page = from.page_of(serial, cold);
            if let Some(read) = fetched.get(page) {
                let was_damaged = cold.has_fault(page.page);
                // The walk has reported it.
                let _ = cold.check(page.page, read, marks);
                if was_damaged {
                    // The page may be read again.
                    self.files = Arc::default();
                }
            }
        }
        Some((place, serial))
    }

    /// What can be compared of a part without walking: its range, and dictionaries with the places of their ids.
    fn check_part(&self, place: usize, serial: u32, faults: &mut Vec<String>) {
        let Tables::Rising(rising) = &self.tables else { return };
        let part = &rising.parts[place];
        match place.checked_sub(1).map(|before| &rising.parts[before]) {
            Some(before) if before.first >= part.first || before.serial >= serial => {
                faults.push(format!("the tables {} and {serial} are not in order", before.serial));
            }
            None if part.first != 0 => faults.push("the first table does not begin at id 0".to_owned()),
            _ => {}
        }
        if let Body::Hot(table) = &part.body {
            self.check_dictionaries(serial, table, faults);
        }
    }

    fn check_dictionaries(&self, serial: u32, table: &Table, faults: &mut Vec<String>) {
        for (id, _) in table.aux.iter().take(CHECKED_MAX) {
            if !matches!(table.find(id, Hash::of(id, self.shape.seed)), Found::Aux(_)) {
                faults.push(format!("table {serial}: id {id} is in the aux dictionary without a slot that says so"));
            }
        }
        for (id, _) in table.waiting_records().take(CHECKED_MAX) {
            if table.find(id, Hash::of(id, self.shape.seed)) != Found::Waiting {
                faults.push(format!("table {serial}: id {id} waits for a slot and is not found there"));
            }
        }
        for (id, _) in table.extend.iter().take(CHECKED_MAX) {
            if table.find(id, Hash::of(id, self.shape.seed)) != Found::Extend {
                faults.push(format!("table {serial}: id {id} is in the extend dictionary and not found there"));
            }
        }
        for (id, _) in table.far_ids().into_iter().flat_map(Dictionary::iter).take(CHECKED_MAX) {
            if table.find(id, Hash::of(id, self.shape.seed)) != Found::Far {
                faults.push(format!("table {serial}: id {id} is among the strays and not found there"));
            }
        }
        // Of those that wait, some will find no slot.
        let waiting = table.waiting_ids().map_or(0, Dictionary::len) as u64;
        if table.used > table.geometry().slots() + waiting {
            faults.push(format!("table {serial}: {} slots are in use", table.used - waiting));
        }
    }
}

/// Entries of each dictionary that a check compares: all of it in one step.
const CHECKED_MAX: usize = 500;
/// Figures of a table.
const TABLE_FIGURES: usize = 9;

pub(super) fn shelf_bytes(shelf: &Shelf<'_>) -> usize {
    match shelf {
        Shelf::Slots(table, _) => table.memory_bytes(),
        Shelf::Frozen(table, overlay) => table.memory_bytes() + overlay.memory_bytes(),
        Shelf::Cold(cold) => cold.memory_bytes(),
    }
}
