//! Walking over all records in bounded steps, while the set serves.
//!
//! A walk follows the serials of tables. Records move only to tables of greater serials (a split) or stay in theirs (a conversion, a
//! file), so a walk meets each record that is there from its begin to its end; it may meet one twice.

use super::rising::{Body, absolute};
use super::serials::SERIALS_MAX;
use super::{CounterSet, Tables};
use crate::VALUES_MAX;
use crate::cold::{ColdTable, FOLD_STEP, Fetched, Folded, Overlay, Page, PageFault, PageRef};
use crate::hash::Hash;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::table::{Dictionary, Table};

/// How far a walk has come: the serial of a table (below [`SERIALS_MAX`]) in bits 40 to 63, and a place below them. Where ids are visited in
/// order, the next one is above them: no part of a range is so narrow that writes cannot fill it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cursor(u128);

/// Bits of a place, its kind excepted.
const PLACE_BITS: u32 = 38;
/// Of the places of a table: those that are no groups.
const WAITING: u64 = 1 << 30;
const FAR: u64 = 1 << 31;

/// A place in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableCursor {
    /// Groups from this one on, then the extend dictionary. Before group 0, the ids that wait for slots, and the strays: they move to
    /// groups.
    Group(u32),
    /// A place of the dictionary of ids that wait for slots.
    Waiting(u32),
    /// A place of the dictionary of strays.
    Far(u32),
    /// A place of the extend dictionary.
    Extend(u32),
    /// What only the overlay has, from this id on.
    Overlay(u64),
    /// What a file and its overlay have, from this id on. A file that replaces another one has the same ids.
    File(u64),
}

impl Cursor {
    fn new(serial: u32, place: TableCursor) -> Cursor {
        let (kind, value, id) = match place {
            TableCursor::Group(group) => (0, u64::from(group), 0),
            TableCursor::Waiting(entries) => (0, WAITING | u64::from(entries), 0),
            TableCursor::Far(entries) => (0, FAR | u64::from(entries), 0),
            TableCursor::Extend(entries) => (1, u64::from(entries), 0),
            TableCursor::File(id) => (2, 0, id),
            TableCursor::Overlay(id) => (3, 0, id),
        };
        Cursor(u128::from(id) << 64 | u128::from(u64::from(serial) << 40 | kind << PLACE_BITS | value))
    }

    /// A cursor as a client sends it.
    pub(crate) fn from_number(number: u128) -> Cursor {
        Cursor(number)
    }

    /// 0 only at the begin, so that 0 can mean the end.
    pub(crate) fn number(self) -> u128 {
        self.0
    }

    pub(crate) fn serial(self) -> u32 {
        (self.0 as u64 >> 40) as u32
    }

    /// Whether the first step of a table with this serial is next.
    pub(super) fn is_begin_of(self, serial: u32) -> bool {
        self.place_in(serial) == TableCursor::Group(0)
    }

    /// The page of a file that is next, if this is a cold table with this serial.
    pub(super) fn page_of(self, serial: u32, cold: &ColdTable) -> PageRef {
        PageRef { file: cold.file(), page: cold.stretch_of(id_of(self.place_in(serial))) }
    }

    /// The work of the step that is next, in groups of slots.
    fn steps(self) -> usize {
        match self.place() {
            TableCursor::Group(_) => 1,
            TableCursor::Overlay(_) => OVERLAY_STEPS,
            TableCursor::Waiting(_) | TableCursor::Far(_) | TableCursor::Extend(_) => EXTEND_STEPS,
            TableCursor::File(_) => FOLD_STEPS,
        }
    }

    fn place_in(self, serial: u32) -> TableCursor {
        if serial == self.serial() { self.place() } else { TableCursor::Group(0) }
    }

    fn place(self) -> TableCursor {
        let (place, id) = (self.0 as u64, (self.0 >> 64) as u64);
        let value = (place & 0x3fff_ffff) as u32;
        match place >> PLACE_BITS & 3 {
            0 if place & WAITING != 0 => TableCursor::Waiting(value),
            0 if place & FAR != 0 => TableCursor::Far(value),
            0 => TableCursor::Group(value),
            1 => TableCursor::Extend(value),
            2 => TableCursor::File(id),
            _ => TableCursor::Overlay(id),
        }
    }
}

/// The records of one serial.
pub(crate) enum Shelf<'a> {
    /// Slots whose groups from a number on have their records here.
    Slots(&'a Table, u32),
    Frozen(&'a Table, &'a Overlay),
    Cold(&'a ColdTable),
}

/// A table that is met by its serial.
pub(crate) struct Met<'a> {
    pub(crate) serial: u32,
    /// The first id of its range; 0 for a table by hash.
    pub(crate) first: u64,
    pub(crate) shelf: Shelf<'a>,
    /// The serial of the next one.
    pub(crate) next: Option<u32>,
    /// The place of its part; 0 for a table by hash.
    pub(super) place: usize,
}

/// Reads a page, or says why it cannot be read. `None`: it is not here yet.
pub(crate) type ReadPage<'a> = dyn FnMut(PageRef) -> Option<Result<Page, PageFault>> + 'a;

/// What one step of a walk gave.
pub(crate) enum WalkStep {
    /// Go on from here.
    Next(Cursor),
    /// All records were visited.
    End,
    /// This page is needed first.
    Page(PageRef),
    /// Why a page could not be read now, and where the walk goes on without its records.
    Unreadable(Refusal, Option<Cursor>),
}

/// The same of one table.
enum Walked {
    On(Option<TableCursor>),
    Page,
    Unreadable(Refusal, Option<TableCursor>),
}

impl Body {
    pub(super) fn shelf(&self) -> Shelf<'_> {
        #[cfg(test)]
        super::tests::visited();
        match self {
            Body::Hot(table) => Shelf::Slots(table, 0),
            Body::Frozen(table, overlay, _) => Shelf::Frozen(table, overlay),
            Body::Cold(cold) => Shelf::Cold(cold),
            Body::Moving => unreachable!("a body is replaced within one function"),
        }
    }
}

impl CounterSet {
    /// The table with the least serial from this one on. Its time hardly depends on the number of tables.
    pub(crate) fn shelf_from(&self, serial: u32) -> Option<Met<'_>> {
        match &self.tables {
            Tables::Rising(rising) => {
                let place = rising.parts.partition_point(|part| part.serial < serial);
                let part = rising.parts.get(place)?;
                let next = rising.parts.get(place + 1).map(|part| part.serial);
                Some(Met { serial: part.serial, first: part.first, shelf: part.body.shelf(), next, place })
            }
            Tables::Random(random) => {
                let (serial, table, from) = random.table_from(serial)?;
                let next = random.serial_after(serial);
                Some(Met { serial, first: 0, shelf: Shelf::Slots(table, from), next, place: 0 })
            }
        }
    }

    /// Records that a step visits at most where it may end after any of them: fewer if each has many values.
    fn step_ids(&self) -> usize {
        (VALUES_MAX / self.schema.fields().len()).min(FOLD_STEP)
    }

    /// Visits the records of one group, some of one page with what was written to its ids, or some of a dictionary.
    pub(crate) fn walk(&self, from: Cursor, read: &mut ReadPage<'_>, visit: &mut impl FnMut(Folded)) -> WalkStep {
        // No table has a serial of `SERIALS_MAX` or more: its cursor would be that of an earlier table, and the walk would never end.
        let met = self.shelf_from(from.serial()).filter(|met| met.serial < SERIALS_MAX);
        let Some(Met { serial, shelf, next: next_serial, .. }) = met else { return WalkStep::End };
        let shelf = &shelf;
        let place = from.place_in(serial);
        let walked = match shelf {
            Shelf::Slots(table, from) => Walked::On(self.walk_slots(table, *from, None, place, visit)),
            Shelf::Frozen(table, overlay) => Walked::On(match place {
                TableCursor::Overlay(from) => self.walk_overlay(table, overlay, from, visit),
                place => self.walk_slots(table, 0, Some(overlay), place, visit).or(Some(TableCursor::Overlay(0))),
            }),
            Shelf::Cold(cold) => walk_file(cold, place, self.step_ids(), read, visit),
        };
        let next = |place: Option<TableCursor>| match (place, next_serial) {
            (Some(place), _) => Some(Cursor::new(serial, place)),
            (None, next) => next.map(|serial| Cursor::new(serial, TableCursor::Group(0))),
        };
        match walked {
            Walked::On(place) => next(place).map_or(WalkStep::End, WalkStep::Next),
            Walked::Page => WalkStep::Page(needed_page(shelf, place)),
            Walked::Unreadable(refusal, place) => WalkStep::Unreadable(refusal, next(place)),
        }
    }

    fn walk_slots(
        &self,
        table: &Table,
        from_group: u32,
        overlay: Option<&Overlay>,
        place: TableCursor,
        visit: &mut impl FnMut(Folded),
    ) -> Option<TableCursor> {
        let mut visit_below = |id: u64, record: Record| match overlay.and_then(|overlay| absolute(overlay, id)) {
            Some(record) => visit(Folded::Record(id, record.clone())),
            None => visit(Folded::Record(id, record)),
        };
        let extend_step = EXTEND_STEP.min(self.step_ids() as u32);
        let mut visit_some =
            |ids: &Dictionary, from| ids.walk(from, extend_step, |id, record| visit_below(id, record.clone()));
        let far_begins = table.far_ids().map(|far| TableCursor::Far(far.first_place()));
        let before_groups = match (place, table.waiting_ids(), table.far_ids()) {
            (TableCursor::Group(0), Some(waiting), _) => Some(TableCursor::Waiting(waiting.first_place())),
            (TableCursor::Group(0) | TableCursor::Waiting(_), None, _) => far_begins,
            (TableCursor::Waiting(from), Some(waiting), _) => {
                visit_some(waiting, from).map(TableCursor::Waiting).or(far_begins)
            }
            (TableCursor::Far(from), _, Some(far)) => visit_some(far, from).map(TableCursor::Far),
            _ => None,
        };
        if before_groups.is_some() {
            return before_groups;
        }
        let place =
            if let TableCursor::Waiting(_) | TableCursor::Far(_) = place { TableCursor::Group(0) } else { place };
        match place {
            TableCursor::Group(group) if group.max(from_group) < table.geometry().groups => {
                let group = group.max(from_group);
                table.for_each_in_group(group, self.shape.seed, &mut visit_below);
                Some(TableCursor::Group(group + 1))
            }
            TableCursor::Extend(from) => visit_some(&table.extend, from).map(TableCursor::Extend),
            _ => Some(TableCursor::Extend(table.extend.first_place())),
        }
    }

    /// Visits some of the records that only the overlay has. It grows while its table waits for a disk that is full.
    fn walk_overlay(
        &self,
        table: &Table,
        overlay: &Overlay,
        from: u64,
        visit: &mut impl FnMut(Folded),
    ) -> Option<TableCursor> {
        for (count, id) in overlay.ids(from..=u64::MAX).enumerate() {
            if count >= OVERLAY_STEP {
                return Some(TableCursor::Overlay(id));
            }
            // Records of zeros are not met among the groups.
            let hash = Hash::of(id, self.shape.seed);
            let is_new = table.is_zero(id, hash, table.find(id, hash));
            if let Some(record) = absolute(overlay, id).filter(|_| is_new) {
                visit(Folded::Record(id, record.clone()));
            }
        }
        None
    }

    /// Visits all records. `read` reads any page.
    pub fn for_each(&self, read: &mut dyn FnMut(PageRef) -> Result<Page, PageFault>, mut visit: impl FnMut(Folded)) {
        let mut cursor = Cursor::default();
        loop {
            match self.walk(cursor, &mut |page| Some(read(page)), &mut visit) {
                WalkStep::Next(next) => cursor = next,
                WalkStep::Unreadable(_, Some(next)) => cursor = next,
                WalkStep::End | WalkStep::Page(_) | WalkStep::Unreadable(_, None) => return,
            }
        }
    }

    /// Records with a value other than 0, some `count` of them or none (then the next call has more), each with its live fields; and the
    /// cursor of the next page, 0 after the last one.
    ///
    /// # Errors
    /// `Err(Ok(page))`: this page is needed. `Err(Err(_))`: `Damaged`, `Unreadable`.
    pub fn scan(&self, cursor: u128, count: usize, fetched: &Fetched) -> Result<Scan, Result<PageRef, Refusal>> {
        let mut scan = Scan { next: cursor, ids: Vec::new(), values: Vec::new() };
        let mut damaged = None;
        let mut steps = 0;
        while steps < SCAN_STEPS {
            let from = Cursor::from_number(scan.next);
            steps += from.steps();
            let step = self.walk(from, &mut |page| fetched.get(page).cloned(), &mut |folded| match folded {
                Folded::Record(id, record) => scan.push(id, &record, &self.shape.numbers),
                Folded::Damaged(damage) => damaged = Some(damage),
                Folded::Held(..) => {}
            });
            match (step, damaged.take()) {
                (_, Some(damage)) => return Err(Err(Refusal::Damaged(damage))),
                (WalkStep::Unreadable(refusal, _), _) => return Err(Err(refusal)),
                (WalkStep::Page(page), _) if scan.next == cursor => return Err(Ok(page)),
                (WalkStep::Page(_), _) => break,
                (WalkStep::End, _) => {
                    scan.next = 0;
                    break;
                }
                (WalkStep::Next(next), _) => scan.next = next.number(),
            }
            if scan.ids.len() >= count {
                break;
            }
        }
        Ok(scan)
    }
}

/// Entries of an extend dictionary that one step visits at most.
const EXTEND_STEP: u32 = 64;
/// Entries of an overlay that one step visits. Most of them give no record.
const OVERLAY_STEP: usize = 16;
/// Groups of one `scan`.
const SCAN_STEPS: usize = 256;
/// A step in a dictionary is as much work as this many groups: each of its entries is copied.
const EXTEND_STEPS: usize = 16;
/// The same of a step in an overlay: each of its ids is searched for in the table.
const OVERLAY_STEPS: usize = 4;
/// The same of a step in a file.
const FOLD_STEPS: usize = 64;

/// A page of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Where the next page begins; 0: this was the last one.
    pub next: u128,
    /// Ids with a value other than 0.
    pub ids: Vec<u64>,
    /// The live fields of each id.
    pub values: Vec<i64>,
}

impl Scan {
    fn push(&mut self, id: u64, record: &Record, numbers: &[u8]) {
        if numbers.iter().any(|number| record.get(*number) != 0) {
            self.ids.push(id);
            self.values.extend(numbers.iter().map(|number| record.get(*number)));
        }
    }
}

fn needed_page(shelf: &Shelf<'_>, place: TableCursor) -> PageRef {
    let Shelf::Cold(cold) = shelf else { unreachable!("slots need no page") };
    PageRef { file: cold.file(), page: cold.stretch_of(id_of(place)) }
}

/// A walk that began in slots begins their file again.
fn id_of(place: TableCursor) -> u64 {
    if let TableCursor::File(id) = place { id } else { 0 }
}

fn walk_file(
    cold: &ColdTable,
    place: TableCursor,
    most: usize,
    read: &mut ReadPage<'_>,
    visit: &mut impl FnMut(Folded),
) -> Walked {
    let from = id_of(place);
    let stretch = cold.stretch_of(from);
    let page = (stretch < cold.pages()).then(|| read(PageRef { file: cold.file(), page: stretch }));
    if let Some(None) = page {
        return Walked::Page;
    }
    let view = cold.view();
    let next_stretch = || (stretch + 1 < view.stretches()).then(|| view.stretch(stretch + 1).0);
    match view.fold_from(stretch, from, most, page.flatten().as_ref(), visit) {
        Ok((_, next)) => Walked::On(next.or_else(next_stretch).map(TableCursor::File)),
        Err(fault) => {
            let why = if let PageFault::Unread(why) = fault { why } else { fault.to_string() };
            let file = cold.name().to_owned();
            let next = next_stretch().map(TableCursor::File);
            Walked::Unreadable(Refusal::Unreadable { file, page: stretch, why }, next)
        }
    }
}
