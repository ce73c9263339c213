//! A dump of a set: pieces of bytes, from which [`CounterSet::restore`] makes an equal set (W4). The host puts them into the engine's
//! snapshot and log, so that a replica and a restart need no files.

use super::random::Node;
use super::restoring::{Rebuilding, Restoring};
use super::rising::{Part, absolute};
use super::walk::{Met, Shelf};
use super::{CounterSet, Mode, Tables};
use crate::bytes::Writer;
use crate::cold::{ColdTable, Entry, Folded, Overlay, Page, PageFault, PageRef, PatchPart};
use crate::layout::Layout;
use crate::record::Record;
use crate::refusal::{Damage, Refusal};
use crate::schema::FIELD_NUMBERS_MAX;
use crate::table::Table;

/// The kinds of pieces.
pub(super) mod kind {
    /// Schema, options, seed.
    pub(crate) const HEADER: u8 = 1;
    /// Tokens of one slice, as version 1 wrote them: all slices have the length that the header has.
    pub(crate) const EQUAL_TOKENS: u8 = 2;
    /// A table by range begins.
    pub(crate) const TABLE: u8 = 3;
    /// The depths of all tables by hash, in the order of their prefixes.
    pub(crate) const TREE: u8 = 4;
    /// Records as they are in slots.
    pub(crate) const SLOTS: u8 = 5;
    /// Whole records. Those of a cold table are in the order of their ids.
    pub(crate) const RECORDS: u8 = 6;
    /// What was written to damaged ranges, and these ranges.
    pub(crate) const HELD: u8 = 7;
    /// The table or the set ends.
    pub(crate) const END: u8 = 8;
    /// The set lacks something for good: its restore has failed.
    pub(crate) const FAILED: u8 = 9;
    /// Tokens of one slice, after the begin and the end of its times.
    pub(crate) const TOKENS: u8 = 10;
}

/// Closes a piece with its checksum.
fn seal(piece: &mut Vec<u8>) {
    let sum = crc32c::crc32c(piece);
    piece.extend_from_slice(&sum.to_le_bytes());
}

/// The version of the format.
pub(super) const VERSION: u64 = 2;
/// Bytes from which a piece is complete.
const PIECE_BYTES: usize = 128 << 10;
/// Values from which a piece is complete: a restore of it holds the engine for less than 1 ms.
const PIECE_VALUES: usize = 4_096;
/// A whole record becomes an entry of a dictionary, or is added to a page: as much work as so many values.
const RECORD_VALUES: usize = 32;

/// A record in a slot costs at least as much work as this many values: its slot may be in a page that the system has not allocated yet.
const SLOT_VALUES: usize = 4;

/// How much more work a restore may do for one piece.
pub(super) struct Work(usize);

impl Work {
    /// The work of the longest piece of a dump. There is no bound for what a primary has accepted, nor for snapshots and logs: pieces of
    /// earlier versions may be longer.
    pub(super) fn most(mode: Mode) -> Work {
        Work(if mode == Mode::Decide { PIECE_VALUES + FIELD_NUMBERS_MAX } else { usize::MAX })
    }

    /// The work of a whole record with so many values, or of what is held for a damaged range.
    pub(super) fn of_record(values: usize) -> usize {
        values.max(RECORD_VALUES)
    }

    /// The work of a record in a slot. A record whose layout is not that of the set becomes a whole record first.
    pub(super) fn of_slot(layout: &Layout, of_set: &Layout) -> usize {
        let values = layout.places().len();
        if layout == of_set { values.max(SLOT_VALUES) } else { Work::of_record(values) }
    }

    pub(super) fn take(&mut self, work: usize) -> Result<(), Refusal> {
        self.0 = self
            .0
            .checked_sub(work)
            .ok_or_else(|| Refusal::invalid("this piece of a dump has more values than one command takes"))?;
        Ok(())
    }
}

/// Collects pieces.
pub struct Dump<'a> {
    emit: &'a mut dyn FnMut(&[u8]),
    piece: Writer,
    /// The work of the piece so far.
    piece_values: usize,
    previous_id: u64,
}

impl<'a> Dump<'a> {
    fn flush(&mut self) {
        if self.piece.len() > 0 {
            seal(&mut self.piece.0);
            (self.emit)(&self.piece.0);
            self.piece.0.clear();
        }
    }

    fn begin(&mut self, kind: u8) {
        if !self.has_room(kind) {
            self.flush();
            self.piece = Writer::new(kind);
            self.piece_values = 0;
            self.previous_id = 0;
        }
    }

    /// Whether the piece is of this kind, and not complete.
    fn has_room(&self, kind: u8) -> bool {
        let is_complete = self.piece.len() >= PIECE_BYTES || self.piece_values >= PIECE_VALUES;
        self.piece.0.first() == Some(&kind) && !is_complete
    }

    fn id(&mut self, id: u64) {
        self.piece.signed(id.wrapping_sub(self.previous_id) as i64);
        self.previous_id = id;
    }

    /// Begins a table by range: its serial, its first id, whether it is cold, its origin, and its `PROBE_MAX`.
    fn table(&mut self, numbers: [u64; 5]) {
        self.flush();
        self.begin(kind::TABLE);
        numbers.into_iter().for_each(|number| self.piece.number(number));
        self.flush();
    }

    fn record(&mut self, id: u64, record: &Record) {
        self.begin(kind::RECORDS);
        self.id(id);
        self.values(record.values());
        self.piece_values += Work::of_record(record.values().len());
    }

    /// Damage, or what was written to it.
    fn held(&mut self, folded: Folded) {
        self.begin(kind::HELD);
        self.piece_values += Work::of_record(match &folded {
            Folded::Held(_, Entry::Absolute(record)) => record.values().len(),
            Folded::Held(_, Entry::Patch(patch)) => patch.parts().count(),
            Folded::Damaged(_) | Folded::Record(..) => 0,
        });
        match folded {
            Folded::Damaged(damage) => {
                self.piece.number(0);
                self.piece.bytes(damage.file.as_bytes());
                for number in [u64::from(damage.page), damage.first, damage.last] {
                    self.piece.number(number);
                }
            }
            Folded::Held(id, Entry::Absolute(record)) => {
                self.piece.number(1);
                self.piece.number(id);
                self.values(record.values());
            }
            Folded::Held(id, Entry::Patch(patch)) => {
                self.piece.number(2);
                self.piece.number(id);
                let parts: Vec<_> = patch.parts().collect();
                self.piece.number(parts.len() as u64);
                for (number, part) in parts {
                    let (is_set, value) = match part {
                        PatchPart::Add(delta) => (0, delta),
                        PatchPart::Set(value) => (1, value),
                    };
                    self.piece.number(u64::from(number) << 1 | is_set);
                    self.piece.signed(value);
                }
            }
            Folded::Record(..) => {}
        }
    }

    fn values(&mut self, values: &[i64]) {
        self.piece.number(values.len() as u64);
        values.iter().for_each(|value| self.piece.signed(*value));
    }

    fn layout(&mut self, layout: &Layout) {
        self.piece.number(layout.bytes as u64);
        self.piece.number(layout.places().len() as u64);
        for place in layout.places() {
            let (bit, width, signed) = place.map_or((0, 0, false), |place| (place.bit, place.width, place.signed));
            self.piece.number(u64::from(bit));
            self.piece.number(u64::from(width) << 1 | u64::from(signed));
        }
    }

    /// A piece without content.
    fn mark(&mut self, kind: u8) {
        self.flush();
        self.piece = Writer::new(kind);
        self.flush();
    }

    fn end(&mut self) {
        self.mark(kind::END);
    }
}

impl CounterSet {
    /// The piece that ends a restore for good, as one does that was taken in part. For a replica and a log, which get only what was taken.
    pub fn failed_piece() -> Vec<u8> {
        let mut piece = vec![kind::FAILED];
        seal(&mut piece);
        piece
    }

    /// Gives all pieces of a dump to `emit`. `read` reads pages of cold tables, also of one whose pieces are still to come; the ranges of
    /// pages that cannot be trusted are refused after a restore too. Of a set that is being restored, the dump ends where the pieces
    /// have ended so far, so that the later ones follow in the copy too. If a piece has failed, the copy takes no further ones either.
    ///
    /// # Errors
    /// A page could not be read, and the dump is of no use.
    pub fn dump(
        &self,
        read: &mut dyn FnMut(PageRef) -> Result<Page, PageFault>,
        emit: &mut dyn FnMut(&[u8]),
    ) -> Result<(), PageFault> {
        let mut dump = Dump { emit, piece: Writer(Vec::new()), piece_values: 0, previous_id: 0 };
        self.dump_header(&mut dump);
        for (times_ms, marks) in self.tokens.slices() {
            for mark in marks {
                if !dump.has_room(kind::TOKENS) {
                    dump.begin(kind::TOKENS);
                    dump.piece.number(times_ms.start);
                    dump.piece.number(times_ms.end);
                }
                dump.piece.0.extend_from_slice(&mark.high.to_le_bytes());
                dump.piece.0.extend_from_slice(&mark.low.to_le_bytes());
                dump.piece.0.extend_from_slice(&mark.content.to_le_bytes());
                dump.piece_values += 1;
            }
            dump.flush();
        }
        if let Tables::Random(random) = &self.tables {
            dump.begin(kind::TREE);
            dump_tree(&random.root, 0, &mut dump.piece);
        }
        let mut serial = Some(0);
        while let Some(met) = serial.and_then(|serial| self.shelf_from(serial)) {
            serial = met.next;
            self.dump_shelf(met, read, &mut dump)?;
            let is_open = serial.is_none() && matches!(self.restoring, Restoring::Hot | Restoring::Kept);
            if matches!(self.tables, Tables::Rising(_)) && !is_open {
                dump.end();
            }
        }
        match &self.restoring {
            Restoring::Complete => dump.end(),
            Restoring::Cold(rebuilding) => {
                let Part { serial, first, .. } = rebuilding.part;
                dump.table([u64::from(serial), first, 1, 0, 0]);
                dump_rebuilding(rebuilding, read, &mut dump)?;
            }
            Restoring::Failed => dump.mark(kind::FAILED),
            Restoring::Between | Restoring::Hot | Restoring::Kept => {}
        }
        Ok(())
    }

    fn dump_header(&self, dump: &mut Dump<'_>) {
        dump.begin(kind::HEADER);
        let piece = &mut dump.piece;
        piece.number(VERSION);
        piece.number(self.shape.seed);
        piece.number(u64::from(self.options.order == crate::Order::Random));
        let options = self.options.list();
        piece.number(options.len() as u64);
        for (name, value) in options {
            piece.bytes(name.as_bytes());
            piece.number(value);
        }
        piece.number(self.schema.fields().len() as u64);
        for field in self.schema.fields() {
            piece.bytes(field.name.as_bytes());
            piece.number(u64::from(field.width) << 2 | u64::from(field.retired) << 1 | u64::from(field.signed));
        }
        let (slice_ms, horizon_ms) = self.tokens.parts();
        piece.number(slice_ms);
        piece.number(horizon_ms);
        dump.flush();
    }

    fn dump_shelf(
        &self,
        Met { serial, first, shelf, .. }: Met<'_>,
        read: &mut dyn FnMut(PageRef) -> Result<Page, PageFault>,
        dump: &mut Dump<'_>,
    ) -> Result<(), PageFault> {
        if matches!(self.tables, Tables::Rising(_)) {
            let (is_cold, origin, probe_max) = match &shelf {
                Shelf::Slots(table, _) | Shelf::Frozen(table, _) => (0, table.origin, table.probe_max()),
                Shelf::Cold(_) => (1, 0, 0),
            };
            dump.table([u64::from(serial), first, is_cold, origin, u64::from(probe_max)]);
        }
        match shelf {
            Shelf::Slots(table, from) => self.dump_slots(table, from, None, dump),
            Shelf::Frozen(table, overlay) => self.dump_slots(table, 0, Some(overlay), dump),
            Shelf::Cold(cold) => dump_file(cold, read, dump)?,
        }
        Ok(())
    }

    fn dump_slots(&self, table: &Table, from: u32, overlay: Option<&Overlay>, dump: &mut Dump<'_>) {
        let is_newer = |id: u64| overlay.is_some_and(|overlay| absolute(overlay, id).is_some());
        dump.flush();
        let mut current: Option<*const Layout> = None;
        for group in from..table.geometry().groups {
            let layout = table.layout_of(group);
            for (id, bytes) in table.slot_records(group) {
                if is_newer(id) {
                    continue;
                }
                let Some(bytes) = bytes else { continue };
                let is_other = current != Some(std::ptr::from_ref(&**layout));
                if is_other || !dump.has_room(kind::SLOTS) {
                    dump.flush();
                    dump.begin(kind::SLOTS);
                    dump.layout(layout);
                    current = Some(std::ptr::from_ref(&**layout));
                }
                dump.id(id);
                dump.piece.0.extend_from_slice(bytes);
                dump.piece_values += Work::of_slot(layout, &self.shape.layout);
            }
        }
        dump.flush();
        for (id, record) in table.aux.iter().chain(table.slotless()) {
            if !is_newer(id) {
                dump.record(id, record);
            }
        }
        for id in overlay.iter().flat_map(|overlay| overlay.ids(0..=u64::MAX)) {
            if let Some(record) = overlay.and_then(|overlay| absolute(overlay, id)) {
                dump.record(id, record);
            }
        }
        dump.flush();
    }
}

fn dump_tree(node: &Node, depth: u32, piece: &mut Writer) {
    match node {
        Node::Leaf(_) => piece.number(u64::from(depth)),
        Node::Splitting(_) => {
            piece.number(u64::from(depth + 1));
            piece.number(u64::from(depth + 1));
        }
        Node::Inner(halves) => halves.iter().for_each(|half| dump_tree(half, depth + 1, piece)),
        Node::Moving => {}
    }
}

fn dump_file(
    cold: &ColdTable,
    read: &mut dyn FnMut(PageRef) -> Result<Page, PageFault>,
    dump: &mut Dump<'_>,
) -> Result<(), PageFault> {
    let view = cold.view();
    let mut held = Vec::new();
    for stretch in 0..view.stretches() {
        let page = PageRef { file: cold.file(), page: stretch };
        let page = (stretch < cold.index().pages()).then(|| read(page));
        view.fold(stretch, page.as_ref(), &mut |folded| match folded {
            Folded::Record(id, record) => dump.record(id, &record),
            other => held.push(other),
        })?;
    }
    dump.flush();
    held.into_iter().for_each(|folded| dump.held(folded));
    Ok(())
}

/// What has come of a cold table so far, without its end.
fn dump_rebuilding(
    rebuilding: &Rebuilding,
    read: &mut dyn FnMut(PageRef) -> Result<Page, PageFault>,
    dump: &mut Dump<'_>,
) -> Result<(), PageFault> {
    let Rebuilding { file, name, writer, held, damage, .. } = rebuilding;
    let mut damage = damage.clone();
    for page in 0..writer.index().pages() {
        match (read(PageRef { file: *file, page }).and_then(|page| page.records()), writer.index().range(page)) {
            (Ok(records), _) => records.iter().for_each(|(id, record)| dump.record(*id, record)),
            (Err(unread @ PageFault::Unread(_)), _) => return Err(unread),
            (Err(_), Some((first, last))) => damage.push(Damage { file: name.clone(), page, first, last }),
            (Err(_), None) => {}
        }
    }
    writer.waiting().for_each(|(id, record)| dump.record(id, &record));
    dump.flush();
    damage.into_iter().for_each(|damage| dump.held(Folded::Damaged(damage)));
    held.iter().for_each(|(id, entry)| dump.held(Folded::Held(*id, entry.clone())));
    dump.flush();
    Ok(())
}
