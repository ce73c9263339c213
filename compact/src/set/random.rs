//! Tables by a hash of the id, for ids in no order (`ORDER RANDOM`). A table that is full splits into two, group by group.

use super::shape::Shape;
use crate::hash::{DEPTH_MAX, Hash};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::table::{Found, Table};

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
}

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
    pub(crate) next_serial: u32,
    /// Tables whose records have moved, to be freed in steps.
    pub(crate) left: Vec<Table>,
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

    /// Moves a record to its half.
    fn adopt(&mut self, id: u64, hash: Hash, record: &Record) {
        let half = self.half(hash);
        let table = &mut self.halves[half].table;
        let found = table.insert(id, hash).unwrap_or_else(|| table.insert_extend(id, hash));
        let values: Vec<(u8, i64)> = (0..=u8::MAX).zip(record.values().iter().copied()).collect();
        table.store(id, hash, found, &values);
    }

    /// Moves the records of a group, or afterwards one of the extend dictionary. Returns whether there are more.
    fn step(&mut self, seed: u64) -> bool {
        if self.next_group < self.old.table.geometry().groups {
            let mut moving = Vec::new();
            self.old.table.for_each_in_group(self.next_group, seed, |id, record| moving.push((id, record)));
            self.next_group += 1;
            for (id, record) in moving {
                self.adopt(id, Hash::of(id, seed), &record);
            }
            return true;
        }
        let Some(id) = self.old.table.extend.any() else { return false };
        let hash = Hash::of(id, seed);
        let record = self.old.table.extend.remove(id, hash).unwrap_or_default();
        self.adopt(id, hash, &record);
        true
    }
}

impl Random {
    pub(crate) fn new(shape: &Shape) -> Random {
        let root = Node::Leaf(Leaf { serial: 0, depth: 0, table: shape.table(0) });
        Random { root, leaves: 1, next_serial: 1, left: Vec::new() }
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
        let may_split = shape.tables_max == 0 || self.leaves < shape.tables_max;
        let serial = self.next_serial;
        let (depth, node) = self.node_mut(hash);
        if let Node::Leaf(leaf) = node
            && leaf.table.used >= shape.fill_slots
            && may_split
            && depth < DEPTH_MAX
        {
            let half = |serial| Leaf { serial, depth: depth + 1, table: shape.table(0) };
            let halves = [half(serial), half(serial + 1)];
            if let Node::Leaf(old) = std::mem::replace(node, Node::Moving) {
                *node = Node::Splitting(Box::new(Split { old, halves, next_group: 0 }));
            }
            self.next_serial += 2;
            self.leaves += 1;
        }
        // A split that serves new ids also advances, so that its halves do not fill before it ends.
        if matches!(self.node_mut(hash).1, Node::Splitting(_)) {
            self.advance(hash, shape.seed);
        }
        let (_, node) = self.node_mut(hash);
        let (table, is_leaf) = match node {
            Node::Leaf(leaf) => (&mut leaf.table, true),
            Node::Splitting(split) => {
                let half = split.half(hash);
                (&mut split.halves[half].table, false)
            }
            Node::Inner(_) | Node::Moving => unreachable!("a walk ends at a table"),
        };
        match table.insert(id, hash) {
            Some(found) => Ok((table, found)),
            None if may_refuse && is_leaf && !may_split => Err(Refusal::Full),
            None => {
                let found = table.insert_extend(id, hash);
                Ok((table, found))
            }
        }
    }

    /// Advances the split of an id's table by one step.
    fn advance(&mut self, hash: Hash, seed: u64) {
        let left = advance(self.node_mut(hash).1, seed);
        self.left.extend(left);
    }

    /// Advances the first split by one step. Returns whether there was one.
    pub(crate) fn advance_any(&mut self, seed: u64) -> bool {
        let Some(node) = first_split(&mut self.root) else { return false };
        let left = advance(node, seed);
        self.left.extend(left);
        true
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

    /// All tables with their serials, and the group before which records have moved elsewhere.
    pub(crate) fn tables(&self) -> Vec<(u32, &Table, u32)> {
        let (mut found, mut nodes) = (Vec::new(), vec![&self.root]);
        while let Some(node) = nodes.pop() {
            match node {
                Node::Leaf(leaf) => found.push((leaf.serial, &leaf.table, 0)),
                Node::Splitting(split) => {
                    found.push((split.old.serial, &split.old.table, split.next_group));
                    found.extend(split.halves.iter().map(|leaf| (leaf.serial, &leaf.table, 0)));
                }
                Node::Inner(halves) => nodes.extend(halves.iter()),
                Node::Moving => {}
            }
        }
        found.sort_by_key(|(serial, ..)| *serial);
        found
    }

    /// All tables that are not being split.
    pub(crate) fn tables_mut(&mut self) -> Vec<&mut Table> {
        let (mut found, mut nodes) = (Vec::new(), vec![&mut self.root]);
        while let Some(node) = nodes.pop() {
            match node {
                Node::Leaf(leaf) => found.push(&mut leaf.table),
                Node::Splitting(split) => {
                    let Split { halves: [lower, upper], .. } = &mut **split;
                    found.extend([&mut lower.table, &mut upper.table]);
                }
                Node::Inner(halves) => nodes.extend(halves.iter_mut()),
                Node::Moving => {}
            }
        }
        found
    }
}

/// Advances a split by one step. One that has moved all records is replaced by its halves; its table is returned.
fn advance(node: &mut Node, seed: u64) -> Option<Table> {
    let Node::Splitting(split) = node else { return None };
    if split.step(seed) {
        return None;
    }
    let Node::Splitting(split) = std::mem::replace(node, Node::Moving) else { unreachable!("it is a split") };
    let Split { old, halves, .. } = *split;
    *node = Node::Inner(Box::new(halves.map(Node::Leaf)));
    Some(old.table)
}

fn first_split(node: &mut Node) -> Option<&mut Node> {
    match node {
        Node::Leaf(_) | Node::Moving => None,
        Node::Splitting(_) => Some(node),
        Node::Inner(halves) => {
            let [lower, upper] = &mut **halves;
            first_split(lower).or_else(|| first_split(upper))
        }
    }
}
