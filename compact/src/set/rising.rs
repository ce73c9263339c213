//! Tables by ranges of ids, for ids that rise with time (`ORDER RISING`, W2).

use super::shape::Shape;
use crate::cold::{ColdTable, Overlay};
use crate::hash::Hash;
use crate::refusal::Refusal;
use crate::table::{Found, Table};
use std::sync::Arc;

/// The ids from `first` to the next part's.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) first: u64,
    /// Rises with each table of the set; a scan follows it.
    pub(crate) serial: u32,
    pub(crate) body: Body,
}

/// Where the records of a part are.
#[derive(Debug)]
pub(crate) enum Body {
    /// In slots.
    Hot(Table),
    /// In slots that no longer change, to be written to a file; whether a job does so. Writes go to the overlay, as whole records.
    Frozen(Arc<Table>, Overlay, bool),
    /// In a file, and in the overlay above it.
    Cold(ColdTable),
    /// Never seen from outside of a function: what was here is being replaced.
    Moving,
}

#[derive(Debug, Default)]
pub(crate) struct Rising {
    pub(crate) parts: Vec<Part>,
    /// The greatest id that has a slot in the last table.
    pub(crate) top: u64,
    /// Ids beyond the reach of the last table that it has got.
    strays: u64,
    /// Tables that were allocated before they are needed.
    pub(crate) spares: Vec<Table>,
    /// Tables that are no longer needed, to be freed in steps.
    pub(crate) left: Vec<Table>,
    pub(crate) next_serial: u32,
}

impl Rising {
    /// The place of the part of an id.
    #[inline]
    pub(crate) fn place(&self, id: u64) -> Option<usize> {
        let last = self.parts.last()?;
        if last.first <= id {
            return Some(self.parts.len() - 1);
        }
        // The first part begins at 0.
        Some(self.parts.partition_point(|part| part.first <= id) - 1)
    }

    /// Whether a part may come after the last one.
    pub(crate) fn is_next(&self, part: &Part) -> bool {
        match self.parts.last() {
            Some(last) => last.first < part.first && last.serial < part.serial,
            None => part.first == 0,
        }
    }

    /// Gives an id that is absent from its hot table a slot or an entry. `may_refuse`: `FULL` is an answer.
    pub(crate) fn make_room(
        &mut self,
        id: u64,
        hash: Hash,
        shape: &Shape,
        may_refuse: bool,
    ) -> Result<(&mut Table, Found), Refusal> {
        if self.parts.is_empty() {
            self.roll(0, id, shape);
        }
        let place = self.place(id).expect("there is a part");
        if place + 1 < self.parts.len() {
            return Ok(insert_late(self.hot(place), id, hash));
        }
        let tables = || self.parts.iter().filter(|part| matches!(part.body, Body::Hot(_))).count() as u64;
        let may_roll = shape.tables_max == 0 || tables() < shape.tables_max;
        let top = self.top;
        let table = self.hot(place);
        let is_full = table.used >= shape.fill_slots;
        if !table.reaches(id) {
            // A few ids beyond the reach of the keys may be strays, and the next ids belong here. Many mean that the range has
            // moved on.
            if id < table.origin || self.strays < shape.strays_max || !may_roll {
                self.strays += u64::from(id > top);
                return Ok((insert_stray(self.hot(place), id, hash), Found::Extend));
            }
            self.roll(top + 1, id, shape);
        } else if is_full && id > top && may_roll {
            self.roll(top + 1, id, shape);
        } else if is_full && !may_roll {
            let table = self.hot(place);
            if let Some(found) = table.insert(id, hash) {
                return Ok((self.raise_top(id), found));
            }
            if may_refuse {
                return Err(Refusal::Full);
            }
        }
        let place = self.parts.len() - 1;
        let (_, found) = insert_late(self.hot(place), id, hash);
        if matches!(found, Found::Slot(_)) {
            return Ok((self.raise_top(id), found));
        }
        Ok((self.hot(place), found))
    }

    /// Begins a new table for the ids from `first` on. Ids beyond the reach of the last table that wait in its extend dictionary
    /// move over, into slots if the new table reaches them: a search looks for such ids there first.
    fn roll(&mut self, first: u64, id: u64, shape: &Shape) {
        let mut table = self.spares.pop().unwrap_or_else(|| shape.table(0));
        table.origin = first.max(id.saturating_sub(shape.geometry.key_max / 2));
        self.top = first;
        self.strays = 0;
        if let Some(Part { body: Body::Hot(last), .. }) = self.parts.last_mut() {
            let moving: Vec<u64> = last.extend.iter().map(|(id, _)| id).filter(|id| *id >= first).collect();
            for id in moving {
                let hash = Hash::of(id, shape.seed);
                if let Some(record) = last.extend.remove(id, hash) {
                    let (_, found) = insert_late(&mut table, id, hash);
                    let values: Vec<(u8, i64)> = (0..=u8::MAX).zip(record.values().iter().copied()).collect();
                    table.store(id, hash, found, &values);
                    self.top = if found == Found::Extend { self.top } else { self.top.max(id) };
                }
            }
        }
        let serial = self.next_serial;
        self.next_serial += 1;
        self.parts.push(Part { first, serial, body: Body::Hot(table) });
    }

    fn raise_top(&mut self, id: u64) -> &mut Table {
        self.top = self.top.max(id);
        self.hot(self.parts.len() - 1)
    }

    fn hot(&mut self, place: usize) -> &mut Table {
        match &mut self.parts[place].body {
            Body::Hot(table) => table,
            _ => unreachable!("only hot tables get new ids; other parts keep them in their overlay"),
        }
    }
}

/// A late id: a slot while the search finds one, then the extend dictionary.
fn insert_late(table: &mut Table, id: u64, hash: Hash) -> (&mut Table, Found) {
    let found = table.insert(id, hash).unwrap_or(Found::Extend);
    if found == Found::Extend {
        table.insert_extend(id, hash);
    }
    (table, found)
}

fn insert_stray(table: &mut Table, id: u64, hash: Hash) -> &mut Table {
    table.insert_extend(id, hash);
    table
}
