//! Tables by ranges of ids, for ids that rise with time (`ORDER RISING`, W2).

use super::left::Left;
use super::outliers::Outliers;
use super::recent::{Outside, Recent};
use super::serials::{SERIALS_LOWER, SERIALS_MAX};
use super::shape::Shape;
use crate::SET_TABLES_MAX;
use crate::cold::{ColdTable, Entry, Overlay};
use crate::hash::Hash;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::table::{Dictionary, Found, Table, touch};
use std::sync::Arc;

/// An id is a stray if it is so many times as far from the begin of the last table as a usual one: ids come less densely at times.
const RANGES_REACHED: u64 = 1_024;
/// Ids that move whose slots are touched at once, so that their cache misses overlap.
const TOUCHED: usize = 32;
/// New ids of the last table for which one stray that they have passed gets a place among them.
const STRAYS_EVERY: u64 = 4;

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
    /// New ids above the range of the last table: usual ones may be there next. Then those that are far from all of them.
    above: Outside,
    wild: Outside,
    /// New ids below the origin of the last table.
    below: Outside,
    /// The latest new ids of the last table, since it is full: those that may end its range.
    candidates: Recent,
    /// Tables that were allocated before they are needed.
    pub(crate) spares: Vec<Table>,
    pub(crate) left: Left,
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
        let serials = SERIALS_MAX.saturating_sub(self.next_serial) as usize;
        SET_TABLES_MAX.saturating_sub(self.parts.len()).min(serials)
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
        self.start_for_new_id(shape);
        if place + 1 < self.parts.len() {
            let table = self.hot(place);
            let found = table.make_room(id, hash);
            return Ok((table, found));
        }
        let may_roll = self.may_roll(shape);
        let table = self.hot(place);
        let (used, extend_ids, is_below) = (table.used, table.extend_len() as u64, id < table.origin);
        let is_full = used >= shape.fill_slots;
        if self.is_stray(id, shape) {
            // The range moves on only if such ids outnumber those of the table: a few wild ones, however many in all, do not move it, and
            // of those far from all others not even a burst. For no way leads back: later ids would be late ones of the range before.
            // Until the next table is ready, further ids become strays, too.
            if !may_roll && may_refuse && extend_ids >= shape.strays_max {
                return Err(Refusal::Full);
            }
            if is_below {
                self.below.push(id);
                self.begin_lower(may_roll, shape);
            } else if self.is_wild(id, shape) {
                self.wild.push(id);
                self.begin_higher(id, (self.wild.excess, shape.wild_max), self.wild.lowest(), shape);
            } else {
                self.above.push(id);
                self.begin_higher(id, (self.above.excess, shape.strays_max), self.above.lowest(), shape);
            }
        } else {
            [&mut self.above, &mut self.wild, &mut self.below].into_iter().for_each(Outside::oppose);
            if used % STRAYS_EVERY == 0 {
                self.settle(id, shape);
            }
            if is_full && may_roll {
                self.end_full(id, used - shape.fill_slots, shape);
            } else if is_full {
                if let Some(found) = self.hot(place).insert(id, hash) {
                    self.outliers.add(id, found, shape.known_max);
                    return Ok((self.hot(place), found));
                }
                if may_refuse {
                    return Err(Refusal::Full);
                }
            }
        }
        let found = self.seat(id, hash, shape);
        Ok((self.hot(self.parts.len() - 1), found))
    }

    /// The share of a new id in the start of the first table.
    fn start_for_new_id(&mut self, shape: &Shape) {
        if let Some(Part { body: Body::Hot(first), .. }) = self.parts.first_mut() {
            first.start_for_new_id(&shape.numbers);
        }
    }

    /// Gives an id that is absent from the last table a place there.
    fn seat(&mut self, id: u64, hash: Hash, shape: &Shape) -> Found {
        let is_stray = self.is_stray(id, shape);
        let table = self.hot(self.parts.len() - 1);
        let found = if is_stray { table.insert_far(id, hash) } else { table.make_room(id, hash) };
        self.outliers.add(id, found, shape.known_max);
        found
    }

    /// The same, with the values of its record that the schema still has.
    fn seat_record(&mut self, id: u64, hash: Hash, record: &Record, shape: &Shape) {
        let values = shape.live(record);
        if values.is_empty() {
            return;
        }
        let found = self.seat(id, hash, shape);
        self.hot(self.parts.len() - 1).store(id, hash, found, &values);
    }

    /// Whether an id does not belong to the range that the ids of the last table have: its slots do not reach it, or it is far above
    /// the others.
    fn is_stray(&self, id: u64, shape: &Shape) -> bool {
        let Some(Part { body: Body::Hot(table), .. }) = self.parts.last() else { return false };
        !table.reaches(id) || self.may_roll(shape) && self.is_wild(id, shape)
    }

    /// Whether an id is far above those of the last table.
    fn is_wild(&self, id: u64, shape: &Shape) -> bool {
        let Some(Part { first, .. }) = self.parts.last() else { return false };
        // By the range of the table before, or by what the table has: the greater of both, as ids may come less densely.
        let before = self.parts.len().checked_sub(2).map(|place| first - self.parts[place].first);
        let usual = self.outliers.usual(shape.outliers_max, shape.known_max).map(|usual| usual.saturating_sub(*first));
        let range = before.max(usual).map(|range| range.max(shape.geometry.slots()));
        range.is_some_and(|range| id > first.saturating_add(range.saturating_mul(RANGES_REACHED)))
    }

    /// A full table gets an id above its range: begins the next one, once enough such ids have come. The lowest of them decides: a few
    /// wild ones do not. They have places in the full table meanwhile, and move.
    fn end_full(&mut self, id: u64, over: u64, shape: &Shape) {
        let above = shape.outliers_max + shape.candidates;
        if self.outliers.border(id, above).is_none() {
            // It is late.
            return;
        }
        self.candidates.push(id);
        let is_ready = self.is_next_ready(over, shape);
        if let Some(lowest) = self.candidates.lowest(shape.candidates)
            && is_ready
            && let Some(first) = self.outliers.border(lowest, above)
        {
            self.roll(first, lowest, shape);
        }
    }

    /// Begins a table for ids above the range of the last one, if these outnumber the others by enough: `excess` of `most`. The one for
    /// which it begins has come just now; `lowest` of the latest.
    fn begin_higher(&mut self, id: u64, (excess, most): (u64, u64), lowest: Option<u64>, shape: &Shape) {
        let Some(late) = excess.checked_sub(most).filter(|_| self.may_roll(shape)) else { return };
        if !self.is_next_ready(late, shape) {
            return;
        }
        let Some(lowest) = lowest else { return };
        let above_slots = self.outliers.above_slots();
        let first = self.outliers.border(lowest, shape.outliers_max).unwrap_or(above_slots.max(lowest));
        // An id below the new range belongs to the old one.
        if first <= id {
            self.roll(first, lowest, shape);
        }
    }

    /// Begins the last table again for ids below its origin, if these are many now and it has few others: the first ids were wild. From
    /// serial `SERIALS_LOWER` on, a set no longer does so, and these ids stay strays: the other serials are for tables of later ids.
    fn begin_lower(&mut self, may_roll: bool, shape: &Shape) {
        let may_begin = may_roll && self.next_serial < SERIALS_LOWER;
        let Some(late) = self.below.excess.checked_sub(shape.below_max).filter(|_| may_begin) else { return };
        let table = self.hot(self.parts.len() - 1);
        let has_few = table.used.max(table.extend.len() as u64) <= shape.first_max;
        let waiting = table.waiting_ids().map_or(0, Dictionary::len) as u64;
        // A first table without memory is replaced by another one: until memory were ready, more wild ids would come than may move.
        let is_starting = table.is_starting();
        let are_known = waiting == table.used || self.outliers.is_complete();
        if !has_few || !are_known || !is_starting && !self.is_next_ready(late, shape) {
            return;
        }
        let Some(lowest) = self.below.lowest() else { return };
        let Some(Part { first, body: Body::Hot(old), .. }) = self.parts.pop() else { return };
        self.hot -= 1;
        self.replace(first, lowest, Some(old), shape);
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
                let is_left = self.above.excess >= shape.strays_max || self.below.excess >= shape.below_max;
                (table.used >= shape.fill_slots || is_left || self.wild.excess >= shape.wild_max)
                    && self.may_roll(shape)
            }
            _ => false,
        };
        let begun = self.spares.len().min(usize::from(is_full));
        self.room().min(preallocated.max(begun))
    }

    /// Begins a new table for the ids from `first` on, of which the usual ones are not below `lowest`. Does so only once no stray is
    /// below `first`.
    fn roll(&mut self, first: u64, lowest: u64, shape: &Shape) {
        if self.parts.last().is_some_and(|last| last.first >= first) || !self.settle(first, shape) {
            return;
        }
        self.replace(first, lowest, None, shape);
    }

    /// The same. The ids of the last table from `first` on, or those of `old` that was in its place, move over: outliers with slots, and
    /// ids that wait in its extend dictionary, into slots if the new table reaches them; and all strays at once.
    fn replace(&mut self, first: u64, lowest: u64, mut old: Option<Table>, shape: &Shape) {
        let mut table = if self.next_serial == 0 || old.as_ref().is_some_and(Table::is_starting) {
            shape.first_table()
        } else {
            self.spares.pop().unwrap_or_else(|| shape.table(0))
        };
        // Of a table that was replaced, those in dictionaries, too: the lowest may not be known.
        let of_old = old.iter().flat_map(|old| old.extend.iter().chain(old.waiting_records())).map(|(id, _)| id);
        let of_old: Vec<u64> = of_old.collect();
        let mut ids = if old.is_some() { self.outliers.take_all() } else { self.outliers.take_from(first) };
        ids.extend(of_old);
        // By the lowest id that the table gets: the latest one may be far above those that follow.
        let lowest = ids.first().map_or(lowest, |moved| lowest.min(*moved)).max(first);
        table.origin = shape.origin(first, lowest);
        let last = match self.parts.last_mut() {
            _ if old.is_some() => old.as_mut(),
            Some(Part { body: Body::Hot(last), .. }) => Some(last),
            _ => None,
        };
        let mut moved = Vec::new();
        if let Some(last) = last {
            table.take_all_far(last);
            let ids: Vec<(u64, Hash)> = ids.into_iter().map(|id| (id, Hash::of(id, shape.seed))).collect();
            for ids in ids.chunks(TOUCHED) {
                touch(ids.iter().map(|(_, hash)| last.approach(*hash)));
                moved.extend(ids.iter().map(|&(id, hash)| (id, hash, last.take(id, hash))));
            }
        }
        if let Some(old) = old {
            self.left.push(old);
            self.left.free_little();
        }
        let mut outliers = std::mem::take(&mut self.outliers);
        outliers.leave_far();
        self.begin();
        self.outliers = outliers;
        self.push(Part { first, serial: self.next_serial, body: Body::Hot(table) });
        for moved in moved.chunks(TOUCHED) {
            let table = &*self.hot(self.parts.len() - 1);
            touch(moved.iter().map(|(_, hash, _)| table.approach(*hash)));
            moved.iter().for_each(|(id, hash, record)| self.seat_record(*id, *hash, record, shape));
        }
    }

    /// Gives the lowest stray a place among the others, if it is below this id. Returns whether no further one is.
    fn settle(&mut self, below: u64, shape: &Shape) -> bool {
        if let Some(id) = self.outliers.pop_far(below) {
            let (hash, lowest) = (Hash::of(id, shape.seed), self.outliers.lowest_far());
            let table = self.hot(self.parts.len() - 1);
            table.far_begins(lowest);
            let values = table.take_far(id, hash).map(|record| shape.live(&record)).unwrap_or_default();
            if !values.is_empty() {
                let found = table.make_room(id, hash);
                table.store(id, hash, found, &values);
                self.outliers.add(id, found, shape.known_max);
            }
        }
        !self.outliers.has_far(below)
    }

    /// A new last table begins.
    pub(crate) fn begin(&mut self) {
        (self.outliers, self.candidates) = (Outliers::default(), Recent::default());
        (self.above, self.wild, self.below) = Default::default();
    }

    /// A restore has given an id this place.
    pub(crate) fn restored(&mut self, id: u64, found: Found, shape: &Shape) {
        if self.place(id).is_some_and(|place| place + 1 == self.parts.len()) {
            self.outliers.add(id, found, shape.known_max);
        }
    }

    pub(crate) fn memory_bytes_without_parts(&self) -> usize {
        let spares: usize = self.spares.iter().map(Table::memory_bytes).sum();
        spares + self.left.memory_bytes() + self.outliers.memory_bytes()
    }

    /// Memory of the strays, and of what is known of them.
    pub(crate) fn strays_bytes(&self) -> usize {
        let far = match self.parts.last() {
            Some(Part { body: Body::Hot(last), .. }) => last.far_bytes(),
            _ => 0,
        };
        far + self.outliers.memory_bytes()
    }

    /// An id has no place in its table any more.
    pub(crate) fn left_table(&mut self, id: u64) {
        self.outliers.remove(id);
        if let Some(Part { body: Body::Hot(last), .. }) = self.parts.last_mut() {
            last.far_begins(self.outliers.lowest_far());
        }
    }

    /// A restore gives an absent id of a hot table a place, with its record.
    pub(crate) fn adopt(&mut self, id: u64, hash: Hash, record: &Record, shape: &Shape) {
        self.start_for_new_id(shape);
        match self.place(id) {
            Some(place) if place + 1 < self.parts.len() => {
                self.hot(place).adopt(id, hash, &shape.live(record));
            }
            _ => self.seat_record(id, hash, record, shape),
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
