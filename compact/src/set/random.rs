//! Tables by a hash of the id, for ids in no order (`ORDER RANDOM`). A table that is full splits into two, group by group.

use super::left::Left;
use super::shape::Shape;
use crate::SET_TABLES_MAX;
use crate::hash::{DEPTH_MAX, Hash};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::table::{Found, Table, touch};
use std::collections::{BTreeMap, BTreeSet};

/// The ids whose hashes begin with the same bits, as many as `depth`.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) serial: u32,
    pub(crate) depth: u32,
    pub(crate) table: Table,
}

/// A table whose records move to two others.
#[derive(Debug)]
pub(crate) struct Split {
    pub(crate) old: Leaf,
    /// Lower and upper.
    pub(crate) halves: [Leaf; 2],
    /// Records of the groups before have moved.
    pub(crate) next_group: u32,
    /// New ids since it began.
    pub(crate) new_ids: u64,
}

/// New ids for which a split moves a group: so few that its halves do not fill before it ends, and so many that a command of a thousand
/// moves some thousand records.
const IDS_PER_GROUP: u64 = 12;
/// In this part of a table's slots as new ids, a split makes the memory of its halves ready: the ids find room in the old table.
const READY_PART: u64 = 16;

#[expect(clippy::large_enum_variant, reason = "a box would cost each command one more cache miss")]
#[derive(Debug)]
pub(crate) enum Node {
    Leaf(Leaf),
    Splitting(Box<Split>),
    Inner(Box<[Node; 2]>),
    /// Never seen from outside of a function: what was here is being replaced.
    Moving,
}

#[derive(Debug)]
pub(crate) struct Random {
    pub(crate) root: Node,
    pub(crate) leaves: u64,
    /// Rises by two with each split: it stays far below the maximum of a cursor, because a set has few tables and they never merge.
    pub(crate) next_serial: u32,
    /// A hash that leads to the table of each serial: a walk goes from serial to serial.
    paths: BTreeMap<u32, Hash>,
    /// The serials of the tables that are being split.
    splitting: BTreeSet<u32>,
    /// Tables whose records have moved, to be freed.
    pub(crate) left: Left,
}

impl Split {
    fn half(&self, hash: Hash) -> usize {
        usize::from(hash.is_upper(self.old.depth))
    }

    /// Finds an id in its half, or in the old table if its group has not moved.
    fn find(&self, id: u64, hash: Hash) -> (bool, Found) {
        let found = self.halves[self.half(hash)].table.find(id, hash);
        if found != Found::Absent {
            return (false, found);
        }
        match self.old.table.find(id, hash) {
            Found::Slot(slot) | Found::Aux(slot) if slot.group < self.next_group => (false, Found::Absent),
            found => (found != Found::Absent, found),
        }
    }

    /// Makes the memory of one more segment of a half ready. Returns whether there was one.
    fn preallocate(&mut self) -> bool {
        self.halves.iter_mut().any(|half| half.table.preallocate())
    }

    /// Whether groups move: once the memory of both halves is there.
    fn is_ready(&self) -> bool {
        self.next_group > 0 || self.halves.iter().all(|half| half.table.has_allocated(1, 1))
    }

    /// One more id comes: makes memory ready, or afterwards says whether a group is to be moved.
    fn is_due(&mut self) -> bool {
        self.new_ids += 1;
        let ready_ids = (self.old.table.geometry().slots() / READY_PART).max(1);
        for half in self.halves.iter_mut().filter(|_| self.next_group == 0) {
            while !half.table.has_allocated(self.new_ids, ready_ids) && half.table.preallocate() {}
        }
        self.is_ready() && self.new_ids % IDS_PER_GROUP == 1
    }

    /// Gives an absent id a place: in the old table until the halves are ready, and then in its half.
    fn make_room(&mut self, id: u64, hash: Hash) -> (&mut Table, Found) {
        let half = self.half(hash);
        let table = if self.is_ready() { &mut self.halves[half].table } else { &mut self.old.table };
        let found = table.make_room(id, hash);
        (table, found)
    }

    /// Moves a record to its half, with the values that the schema still has.
    fn adopt(&mut self, id: u64, hash: Hash, record: &Record, shape: &Shape) {
        let values = shape.live(record);
        if values.is_empty() {
            return;
        }
        let half = self.half(hash);
        self.halves[half].table.adopt(id, hash, &values);
    }

    /// Moves the records of the next group.
    fn move_group(&mut self, shape: &Shape) {
        let seed = shape.seed;
        let Split { old, halves, next_group, .. } = self;
        let layout = old.table.layout_of(*next_group);
        let are_same = [0, 1].map(|half: usize| halves[half].table.has_layout(layout));
        let place = |(id, bytes)| {
            let hash = Hash::of(id, seed);
            (id, hash, usize::from(hash.is_upper(old.depth)), bytes)
        };
        let records: Vec<_> = old.table.slot_records(*next_group).map(place).collect();
        touch(records.iter().map(|(_, hash, half, _)| halves[*half].table.approach(*hash)));
        let mut others = Vec::new();
        for (id, hash, half, bytes) in records {
            let table = &mut halves[half].table;
            if bytes.is_none_or(|bytes| !are_same[half] || table.insert_bytes(id, hash, bytes).is_none()) {
                others.push((id, hash, old.table.record(id, hash, old.table.find(id, hash))));
            }
        }
        old.table.leave_group(*next_group, seed);
        *next_group += 1;
        others.into_iter().for_each(|(id, hash, record)| self.adopt(id, hash, &record, shape));
    }

    /// Moves the records of a group, or afterwards one of the extend dictionary. Returns whether there are more.
    fn step(&mut self, shape: &Shape) -> bool {
        let groups = self.old.table.geometry().groups;
        if self.next_group < groups {
            self.move_group(shape);
        } else if let Some((id, hash, record)) = self.old.table.extend.pop() {
            self.adopt(id, hash, &record, shape);
        }
        self.next_group < groups || self.old.table.extend.len() > 0
    }
}

impl Random {
    pub(crate) fn new(shape: &Shape) -> Random {
        let root = Node::Leaf(Leaf { serial: 0, depth: 0, table: shape.first_table() });
        let (paths, splitting) = (BTreeMap::from([(0, Hash::first())]), BTreeSet::new());
        Random { root, leaves: 1, next_serial: 1, paths, splitting, left: Left::default() }
    }

    /// Finds the paths of all tables, after a restore has made the tree.
    pub(crate) fn find_paths(&mut self) {
        let mut paths = Vec::with_capacity(self.leaves as usize);
        find_paths(&self.root, Hash::first(), 0, &mut paths);
        // Of a sorted list, a map is made at once.
        self.paths = paths.into_iter().collect();
    }

    /// Whether there is one table, which no id has needed yet.
    pub(crate) fn is_new(&self) -> bool {
        matches!(&self.root, Node::Leaf(leaf) if leaf.table.used == 0 && leaf.table.extend.len() == 0)
    }

    /// The table that has the ids of this hash, or will have them after its split.
    #[inline]
    pub(crate) fn newest(&self, hash: Hash) -> &Table {
        match self.node(hash) {
            Node::Leaf(leaf) => &leaf.table,
            Node::Splitting(split) => &split.halves[split.half(hash)].table,
            Node::Inner(_) | Node::Moving => unreachable!("a walk ends at a table"),
        }
    }

    /// The table that has the ids of this hash until their group has moved, if they move.
    #[inline]
    pub(crate) fn older(&self, hash: Hash) -> Option<&Table> {
        match self.node(hash) {
            Node::Splitting(split) => Some(&split.old.table),
            _ => None,
        }
    }

    /// Whether a table splits.
    pub(crate) fn is_splitting(&self) -> bool {
        !self.splitting.is_empty()
    }

    /// The first table, while it is the only one.
    pub(crate) fn only(&mut self) -> Option<&mut Table> {
        match &mut self.root {
            Node::Leaf(leaf) => Some(&mut leaf.table),
            _ => None,
        }
    }

    /// The table that has an id, or may get it.
    #[inline]
    pub(crate) fn find_mut(&mut self, id: u64, hash: Hash) -> (&mut Table, Found) {
        match self.node_mut(hash).1 {
            Node::Leaf(leaf) => {
                let found = leaf.table.find(id, hash);
                (&mut leaf.table, found)
            }
            Node::Splitting(split) => {
                let ((is_old, found), half) = (split.find(id, hash), split.half(hash));
                (if is_old { &mut split.old.table } else { &mut split.halves[half].table }, found)
            }
            Node::Inner(_) | Node::Moving => unreachable!("a walk ends at a table"),
        }
    }

    /// Gives an absent id a slot or an entry. `may_refuse`: `FULL` is an answer.
    pub(crate) fn make_room(
        &mut self,
        id: u64,
        hash: Hash,
        shape: &Shape,
        may_refuse: bool,
    ) -> Result<(&mut Table, Found), Refusal> {
        let has_room = self.leaves < SET_TABLES_MAX as u64;
        let may_split = has_room && (shape.tables_max == 0 || self.leaves < shape.tables_max);
        let serial = self.next_serial;
        let (depth, node) = self.node_mut(hash);
        if let Node::Leaf(leaf) = node {
            leaf.table.start_for_new_id(&shape.numbers);
        }
        // A table has its own ids in slots before it splits.
        if let Node::Leaf(leaf) = node
            && !leaf.table.is_starting()
            && leaf.table.used >= shape.fill_slots
            && may_split
            && depth < DEPTH_MAX
        {
            let half = |serial| Leaf { serial, depth: depth + 1, table: shape.table(0) };
            let halves = [half(serial), half(serial + 1)];
            let old_serial = leaf.serial;
            if let Node::Leaf(old) = std::mem::replace(node, Node::Moving) {
                *node = Node::Splitting(Box::new(Split { old, halves, next_group: 0, new_ids: 0 }));
            }
            self.splitting.insert(old_serial);
            self.paths.insert(serial, hash.in_half(depth, false));
            self.paths.insert(serial + 1, hash.in_half(depth, true));
            self.next_serial += 2;
            self.leaves += 1;
        }
        // A split that serves new ids also advances, so that its halves do not fill before it ends.
        if let Node::Splitting(split) = self.node_mut(hash).1
            && split.is_due()
        {
            self.advance(hash, shape);
        }
        match self.node_mut(hash).1 {
            Node::Leaf(Leaf { table, .. }) => match table.insert(id, hash) {
                Some(found) => Ok((table, found)),
                None if may_refuse && !may_split => Err(Refusal::Full),
                None => {
                    let found = table.insert_extend(id, hash);
                    Ok((table, found))
                }
            },
            Node::Splitting(split) => Ok(split.make_room(id, hash)),
            Node::Inner(_) | Node::Moving => unreachable!("a walk ends at a table"),
        }
    }

    /// Advances the split of an id's table by one step.
    fn advance(&mut self, hash: Hash, shape: &Shape) {
        let left = advance(self.node_mut(hash).1, shape);
        self.leave(left);
    }

    /// The first split.
    fn any_split(&mut self) -> Option<(Hash, &mut Split)> {
        let hash = *self.splitting.first().and_then(|serial| self.paths.get(serial))?;
        match self.node_mut(hash).1 {
            Node::Splitting(split) => Some((hash, split)),
            _ => None,
        }
    }

    /// Advances the first split by one step, if its memory is ready. Returns whether it was.
    pub(crate) fn advance_any(&mut self, shape: &Shape) -> bool {
        let hash = self.any_split().filter(|(_, split)| split.is_ready()).map(|(hash, _)| hash);
        hash.inspect(|hash| self.advance(*hash, shape)).is_some()
    }

    /// Makes the memory of a segment of the first split ready. Returns whether there was one.
    pub(crate) fn preallocate(&mut self) -> bool {
        self.any_split().is_some_and(|(_, split)| split.preallocate())
    }

    /// A table whose records have all moved is no longer met by walks.
    fn leave(&mut self, left: Option<Leaf>) {
        if let Some(leaf) = left {
            self.paths.remove(&leaf.serial);
            self.splitting.remove(&leaf.serial);
            self.left.push(leaf.table);
        }
    }

    fn node(&self, hash: Hash) -> &Node {
        let (mut node, mut depth) = (&self.root, 0);
        while let Node::Inner(halves) = node {
            node = &halves[usize::from(hash.is_upper(depth))];
            depth += 1;
        }
        node
    }

    fn node_mut(&mut self, hash: Hash) -> (u32, &mut Node) {
        let (mut node, mut depth) = (&mut self.root, 0);
        while let Node::Inner(halves) = node {
            node = &mut halves[usize::from(hash.is_upper(depth))];
            depth += 1;
        }
        (depth, node)
    }

    /// The table with the least serial from this one on: its serial, and the group before which records have moved elsewhere.
    pub(crate) fn table_from(&self, serial: u32) -> Option<(u32, &Table, u32)> {
        let (&serial, hash) = self.paths.range(serial..).next()?;
        match self.node(*hash) {
            Node::Leaf(leaf) => Some((serial, &leaf.table, 0)),
            Node::Splitting(split) if split.old.serial == serial => Some((serial, &split.old.table, split.next_group)),
            Node::Splitting(split) => Some((serial, &split.halves[split.half(*hash)].table, 0)),
            Node::Inner(_) | Node::Moving => unreachable!("a walk ends at a table"),
        }
    }

    /// The serial that comes after this one.
    pub(crate) fn serial_after(&self, serial: u32) -> Option<u32> {
        self.paths.range(serial + 1..).next().map(|(serial, _)| *serial)
    }

    /// All tables in no order, each with the group before which records have moved elsewhere.
    pub(crate) fn each_table<'a>(&'a self, each: &mut impl FnMut(&'a Table, u32)) {
        let mut nodes = vec![&self.root];
        while let Some(node) = nodes.pop() {
            match node {
                Node::Leaf(leaf) => each(&leaf.table, 0),
                Node::Splitting(split) => {
                    each(&split.old.table, split.next_group);
                    split.halves.iter().for_each(|leaf| each(&leaf.table, 0));
                }
                Node::Inner(halves) => nodes.extend(halves.iter()),
                Node::Moving => {}
            }
        }
    }

    /// The table with the greatest serial up to this one. `None` in its place: its records are moving to others.
    pub(crate) fn table_up_to(&mut self, serial: u32) -> Option<(u32, Option<&mut Table>)> {
        let (&serial, &hash) = self.paths.range(..=serial).next_back()?;
        let table = match self.node_mut(hash).1 {
            Node::Leaf(leaf) => Some(&mut leaf.table),
            Node::Splitting(split) if split.old.serial == serial => None,
            Node::Splitting(split) => {
                let half = split.half(hash);
                Some(&mut split.halves[half].table)
            }
            Node::Inner(_) | Node::Moving => unreachable!("a walk ends at a table"),
        };
        Some((serial, table))
    }

    /// Tables, those that are being split and their halves included.
    pub(crate) fn count(&self) -> usize {
        self.paths.len()
    }
}

fn find_paths(node: &Node, hash: Hash, depth: u32, paths: &mut Vec<(u32, Hash)>) {
    match node {
        Node::Leaf(leaf) => paths.push((leaf.serial, hash)),
        Node::Inner(halves) => {
            let [lower, upper] = &**halves;
            find_paths(lower, hash.in_half(depth, false), depth + 1, paths);
            find_paths(upper, hash.in_half(depth, true), depth + 1, paths);
        }
        Node::Splitting(_) | Node::Moving => {}
    }
}

/// Advances a split by one step. One that has moved all records is replaced by its halves, and returned.
fn advance(node: &mut Node, shape: &Shape) -> Option<Leaf> {
    let Node::Splitting(split) = node else { return None };
    if split.step(shape) {
        return None;
    }
    let Node::Splitting(split) = std::mem::replace(node, Node::Moving) else { unreachable!("it is a split") };
    let Split { old, halves, .. } = *split;
    *node = Node::Inner(Box::new(halves.map(Node::Leaf)));
    Some(old)
}
