//! Reads what the pieces of a dump consist of: the header, layouts, values, and the tree of tables by hash.

use super::dump::VERSION;
use super::random::{Leaf, Node};
use super::serials::RESTORED_TABLES_MAX;
use super::shape::Shape;
use super::{CounterSet, Mode};
use crate::SET_TABLES_MAX;
use crate::bytes::Reader;
use crate::hash::DEPTH_MAX;
use crate::layout::{BitRange, Layout};
use crate::options::{Options, Order};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::schema::{FIELD_NUMBERS_MAX, Field, Schema};
use crate::tokens::Tokens;

/// Whether a set may have so many tables.
pub(super) fn has_room(mode: Mode, tables: u64) -> Result<(), Refusal> {
    let most = if mode == Mode::Decide { SET_TABLES_MAX } else { RESTORED_TABLES_MAX };
    if tables > most as u64 {
        return Err(Refusal::invalid(format!("a set has at most {most} tables")));
    }
    Ok(())
}

pub(super) fn header(reader: &mut Reader<'_>) -> Result<CounterSet, Refusal> {
    if reader.number()? > VERSION {
        return Err(Refusal::invalid("the dump was written by a later version"));
    }
    let seed = reader.number()?;
    let order = if reader.number()? == 1 { Order::Random } else { Order::Rising };
    let mut options = Options { order, ..Options::default() };
    for _ in 0..reader.small::<u8>()? {
        let name = reader.text()?;
        options.set(name.as_bytes(), reader.number()?.to_string().as_bytes(), true)?;
    }
    let mut fields = Vec::new();
    let count: usize = reader.small()?;
    if count > FIELD_NUMBERS_MAX {
        return Err(Refusal::invalid(format!("a schema has at most {FIELD_NUMBERS_MAX} fields in its life")));
    }
    for _ in 0..count {
        let (name, bits) = (reader.text()?, reader.number()?);
        let width = u8::try_from(bits >> 2).or_else(|_| Reader::broken())?;
        let field = Field::parse(name.as_bytes(), width.to_string().as_bytes())?;
        fields.push(Field { signed: bits & 1 == 1, retired: bits & 2 == 2, ..field });
    }
    let (slice_ms, horizon_ms) = (reader.number()?, reader.number()?);
    let mut set = CounterSet::new(Schema::new(fields)?, options, seed)?;
    set.tokens = Tokens::from_parts(slice_ms, horizon_ms);
    Ok(set)
}

pub(super) fn layout(reader: &mut Reader<'_>) -> Result<Layout, Refusal> {
    let (bytes, count): (usize, usize) = (reader.small()?, reader.small()?);
    let mut places = Vec::new();
    for _ in 0..count.min(FIELD_NUMBERS_MAX) {
        let (bit, bits): (u16, u16) = (reader.small()?, reader.small()?);
        let width = (bits >> 1) as u8;
        places.push((width > 0).then_some(BitRange { bit, width, signed: bits & 1 == 1 }));
    }
    Layout::from_places(places, bytes).ok_or(()).or_else(|()| Reader::broken())
}

pub(super) fn values(reader: &mut Reader<'_>) -> Result<Record, Refusal> {
    let count: usize = reader.small()?;
    if count > FIELD_NUMBERS_MAX {
        return Reader::broken();
    }
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        values.push(reader.signed()?);
    }
    Ok(Record::new(values))
}

pub(super) fn tree(
    reader: &mut Reader<'_>,
    depth: u32,
    shape: &Shape,
    mode: Mode,
    leaves: &mut u32,
) -> Result<Node, Refusal> {
    // The depth of the next leaf in order says whether this node is one.
    let mut ahead = Reader(reader.0);
    let next: u32 = ahead.small()?;
    if next < depth || next > DEPTH_MAX {
        return Reader::broken();
    }
    if next == depth {
        reader.0 = ahead.0;
        let serial = *leaves;
        *leaves += 1;
        has_room(mode, u64::from(*leaves))?;
        // The only table is the first one of a set.
        let table = if depth == 0 { shape.first_table() } else { shape.table(0) };
        return Ok(Node::Leaf(Leaf { serial, depth, table }));
    }
    let lower = tree(reader, depth + 1, shape, mode, leaves)?;
    let upper = tree(reader, depth + 1, shape, mode, leaves)?;
    Ok(Node::Inner(Box::new([lower, upper])))
}
