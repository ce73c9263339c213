//! What new tables are made of: the sizes and bounds that follow from the schema and the options.

use super::recent::RECENT;
use crate::layout::Layout;
use crate::options::{Options, Order};
use crate::record::Record;
use crate::schema::Schema;
use crate::table::{Geometry, Table};
use std::sync::Arc;

/// Ids beyond the reach of the last table that wait before it rolls, at most.
const STRAYS_MAX: u64 = 1_024;
/// In this part of the slots wild ids wait before a table begins for them: so many take less memory than a table.
const WILD_PART: u64 = 8;
/// Ids with slots that are known, at most: a roll moves them.
const KNOWN_MAX: u64 = 1_024;

#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) seed: u64,
    pub(crate) geometry: Geometry,
    pub(crate) layout: Arc<Layout>,
    /// Used slots from which a table is full.
    pub(crate) fill_slots: u64,
    /// Ids that a full table still gets, at most, until the next one is ready.
    pub(crate) ready_ids: u64,
    /// Ids out of the range of the last table, by how many they outnumber those of its range before another one begins.
    pub(crate) strays_max: u64,
    /// The same of ids that are far from all others.
    pub(crate) wild_max: u64,
    /// Ids below the last table, by how many they outnumber those above before the table begins again.
    pub(crate) below_max: u64,
    /// Ids that this table has then, at most. All of both move at once, so these bounds are half of the others.
    pub(crate) first_max: u64,
    /// The greatest ids of the last table that are known.
    pub(crate) known_max: usize,
    /// Ids with slots that a roll may move.
    pub(crate) outliers_max: usize,
    /// Ids that come to a full table before one of them ends its range.
    pub(crate) candidates: usize,
    pub(crate) tables_max: u64,
    probe_max: u32,
    /// The numbers of the live fields, in the order of a reply.
    pub(crate) numbers: Vec<u8>,
}

impl Shape {
    pub(crate) fn new(schema: &Schema, options: &Options, seed: u64) -> Shape {
        let key_bytes = match (options.key_bytes, options.order) {
            (0, Order::Rising) => 5,
            (0, Order::Random) => 8,
            (bytes, _) => bytes as usize,
        };
        let geometry = Geometry::new(options.table_slots, key_bytes, options.segment_bytes);
        let slots = geometry.slots();
        let strays_max = (slots / 256).clamp(1, STRAYS_MAX);
        let known_max = (slots / 4).clamp(16, KNOWN_MAX);
        Shape {
            seed,
            geometry,
            layout: Arc::new(Layout::of(schema)),
            fill_slots: (slots * options.fill_percent / 100).max(1),
            ready_ids: (slots / 32).max(1),
            outliers_max: (slots / 64) as usize,
            candidates: (slots / 64).clamp(1, RECENT as u64) as usize,
            strays_max,
            wild_max: strays_max.max(slots / WILD_PART),
            below_max: strays_max.div_ceil(2),
            first_max: known_max / 2,
            known_max: known_max as usize,
            tables_max: options.tables_max,
            probe_max: options.probe_max.min(options.probes_max()) as u32,
            numbers: schema.live().map(|(number, _)| number).collect(),
        }
    }

    /// The first table of a set.
    pub(crate) fn first_table(&self) -> Table {
        self.table(0).without_memory()
    }

    /// The values of a record other than 0, those of retired fields excepted: with them, it would not fit a new slot.
    pub(crate) fn live(&self, record: &Record) -> Vec<(u8, i64)> {
        record.numbered().filter(|(number, value)| *value != 0 && self.numbers.contains(number)).collect()
    }

    /// The origin of a table whose range begins at `first`, and whose lowest id is `lowest`.
    pub(crate) fn origin(&self, first: u64, lowest: u64) -> u64 {
        let key_max = self.geometry.key_max;
        if lowest - first <= key_max { first } else { first.max(lowest - key_max / 2) }
    }

    pub(crate) fn table(&self, origin: u64) -> Table {
        Table::new(origin, self.geometry, self.layout.clone(), self.probe_max)
    }
}
