//! Tables by ranges of ids, for ids that rise with time (`ORDER RISING`, W2).

use super::outliers::Outliers;
use super::shape::Shape;
use crate::SET_TABLES_MAX;
use crate::cold::{ColdTable, Entry, Overlay};
use crate::hash::Hash;
use crate::record::Record;
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
    /// The greatest ids of the last table.
    outliers: Outliers,
    /// Ids beyond the reach of the last table that it has got.
    strays: u64,
    /// Tables that were allocated before they are needed.
    pub(crate) spares: Vec<Table>,
    /// Tables that are no longer needed, to be freed in steps.
    pub(crate) left: Vec<Table>,
    pub(crate) next_serial: u32,
    /// Hot parts. They are counted as they come and go, because each new id needs their number.
    hot: u64,
}

impl Rising {
    /// Adds the next part.
    pub(crate) fn push(&mut self, part: Part) {
        self.hot += u64::from(matches!(part.body, Body::Hot(_)));
        self.next_serial = self.next_serial.max(part.serial + 1);
        self.parts.push(part);
    }

    /// A hot part has got another body.
    pub(crate) fn cooled(&mut self) {
        self.hot -= 1;
    }

    /// Tables that the set may still get.
    pub(crate) fn room(&self) -> usize {
        SET_TABLES_MAX.saturating_sub(self.parts.len())
    }

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
        if let Some(Part { body: Body::Hot(first), .. }) = self.parts.first_mut() {
            first.start_for_new_id(&shape.numbers);
        }
        if place + 1 < self.parts.len() {
            let table = self.hot(place);
            let found = table.make_room(id, hash);
            return Ok((table, found));
        }
        let may_roll = self.may_roll(shape);
        let Body::Hot(table) = &self.parts[place].body else { unreachable!("the last table is hot") };
        let used = table.used;
        let is_full = used >= shape.fill_slots;
        if !table.reaches(id) {
            // A few ids beyond the reach of the keys may be strays, and the next ids belong here. Many mean that the range has
            // moved on. Until the next table is ready, further ids become strays, too.
            let (is_below, extend_ids) = (id < table.origin, table.extend.len() as u64);
            let late = self.strays.checked_sub(shape.strays_max).filter(|_| !is_below && may_roll);
            let ends_range = late.is_some_and(|ids| self.is_next_ready(ids, shape)) && id >= self.next_begin(id);
            if !ends_range {
                if !may_roll && may_refuse && extend_ids >= shape.strays_max {
                    return Err(Refusal::Full);
                }
                self.strays += u64::from(!is_below);
                self.outliers.add(id, true);
                let table = self.hot(place);
                let found = table.insert_extend(id, hash);
                return Ok((table, found));
            }
            self.roll(self.next_begin(id), id, shape);
        } else if is_full && may_roll {
            // A few ids above this one are outliers: they move, and do not end the range of the table.
            if let Some(first) = self.outliers.border(id, shape.outliers_max)
                && self.is_next_ready(used - shape.fill_slots, shape)
            {
                self.roll(first, id, shape);
            }
        } else if is_full {
            if let Some(found) = self.hot(place).insert(id, hash) {
                self.outliers.add(id, false);
                return Ok((self.hot(place), found));
            }
            if may_refuse {
                return Err(Refusal::Full);
            }
        }
        let place = self.parts.len() - 1;
        let found = self.hot(place).make_room(id, hash);
        self.outliers.add(id, found == Found::Extend);
        Ok((self.hot(place), found))
    }

    /// Where the range after that of the last table begins, if this id ends it: above all ids with slots, and so that a bounded number
    /// of strays moves.
    fn next_begin(&self, id: u64) -> u64 {
        let above_slots = self.outliers.top().map_or(id, |top| top + 1);
        self.outliers.strays_up_to(id).map_or(above_slots, |strays| strays.max(above_slots))
    }

    /// Whether the set may get a further table.
    fn may_roll(&self, shape: &Shape) -> bool {
        self.room() > 0 && (shape.tables_max == 0 || self.hot < shape.tables_max)
    }

    /// Whether the memory of the next table is there. A part of it gets ready for each id that a full table gets meanwhile, and by
    /// the background: all of it at once would hold up a command for milliseconds.
    fn is_next_ready(&mut self, ids: u64, shape: &Shape) -> bool {
        if self.spares.is_empty() {
            self.spares.push(shape.table(0));
        }
        let Some(next) = self.spares.last_mut() else { return false };
        while !next.has_allocated(ids + 1, shape.ready_ids) && next.preallocate() {}
        next.has_allocated(1, 1)
    }

    /// Tables to have in advance: so many, and one that a full table has begun to make ready.
    pub(crate) fn wanted_spares(&self, preallocated: usize, shape: &Shape) -> usize {
        let is_full = match self.parts.last() {
            Some(Part { body: Body::Hot(table), .. }) => {
                (table.used >= shape.fill_slots || self.strays >= shape.strays_max) && self.may_roll(shape)
            }
            _ => false,
        };
        let begun = self.spares.len().min(usize::from(is_full));
        self.room().min(preallocated.max(begun))
    }

    /// Begins a new table for the ids from `first` on. Those of the last table move over: outliers with slots, and ids that wait in its
    /// extend dictionary, into slots if the new table reaches them: a search looks for such ids there first.
    fn roll(&mut self, first: u64, id: u64, shape: &Shape) {
        let mut table = match self.parts.is_empty() {
            true => shape.first_table(),
            false => self.spares.pop().unwrap_or_else(|| shape.table(0)),
        };
        let (slots, extend) = self.outliers.take_from(first);
        // By the lowest id that the table gets: this one may be far above those that follow.
        let lowest = slots.first().into_iter().chain(extend.first()).fold(id, |lowest, moved| lowest.min(*moved));
        table.origin = first.max(lowest.saturating_sub(shape.geometry.key_max / 2));
        self.begin();
        if let Some(Part { body: Body::Hot(last), .. }) = self.parts.last_mut() {
            for id in slots.into_iter().chain(extend) {
                let hash = Hash::of(id, shape.seed);
                let record = last.take(id, hash);
                if record.is_zero() {
                    continue;
                }
                let found = table.adopt(id, hash, &record);
                self.outliers.add(id, found == Found::Extend);
            }
        }
        self.push(Part { first, serial: self.next_serial, body: Body::Hot(table) });
    }

    /// A new last table begins.
    pub(crate) fn begin(&mut self) {
        (self.outliers, self.strays) = (Outliers::default(), 0);
    }

    /// A restore has given an id a slot or an entry.
    pub(crate) fn restored(&mut self, id: u64, is_extend: bool) {
        if self.place(id).is_some_and(|place| place + 1 == self.parts.len()) {
            self.outliers.add(id, is_extend);
        }
    }

    fn hot(&mut self, place: usize) -> &mut Table {
        match &mut self.parts[place].body {
            Body::Hot(table) => table,
            _ => unreachable!("only hot tables get new ids; other parts keep them in their overlay"),
        }
    }
}

/// The record that an overlay has for an id. Above slots, all its entries are whole records.
pub(super) fn absolute(overlay: &Overlay, id: u64) -> Option<&Record> {
    match overlay.get(id) {
        Some(Entry::Absolute(record)) => Some(record),
        _ => None,
    }
}
