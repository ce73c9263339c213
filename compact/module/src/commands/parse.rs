//! Arguments that several commands have.

use super::token::TOKEN;
use super::{Call, Stop};
use crate::args::{signed, unsigned, wide};
use tallystone_compact::{Field, IDS_MAX, Mode, Schema, VALUES_MAX};

/// Values of the records that a command writes, at most.
const WRITTEN_MAX: usize = 16_384;
/// Fields of one id that a command names at most.
pub(super) const FIELDS_MAX: usize = 256;

pub(super) const TOO_MANY_IDS: Stop = Stop::text("ERR a command has at most 512 ids");
pub(super) const TOO_MANY_VALUES: Stop = Stop::text("ERR a reply has at most 4096 values; request fewer ids");

#[cold]
fn not_an_id() -> Stop {
    Stop::text("ERR an id is a decimal number from 0 to 18446744073709551615")
}

#[cold]
fn not_a_number() -> Stop {
    Stop::text("ERR value is not an integer or out of range")
}

#[cold]
fn no_field(name: &[u8]) -> Stop {
    Stop::invalid(&format!("there is no field '{}'", String::from_utf8_lossy(name)))
}

#[inline]
pub(super) fn id(text: &[u8]) -> Result<u64, Stop> {
    unsigned(text).ok_or_else(not_an_id)
}

/// A number of ids, or of a table.
pub(super) fn count(text: &[u8]) -> Result<u64, Stop> {
    unsigned(text).ok_or_else(not_a_number)
}

/// Where a scan or a check goes on.
pub(super) fn cursor(text: &[u8]) -> Result<u128, Stop> {
    wide(text).ok_or(Stop::text("ERR a cursor is 0, or what the command before has returned"))
}

#[inline]
pub(super) fn number(text: &[u8]) -> Result<i64, Stop> {
    signed(text).ok_or_else(not_a_number)
}

#[inline]
pub(super) fn field(schema: &Schema, name: &[u8]) -> Result<u8, Stop> {
    schema.number(name).ok_or_else(|| no_field(name))
}

/// Ids from a place to the end of the arguments.
pub(super) fn ids(call: &Call<'_>, from: usize, out: &mut Vec<u64>) -> Result<(), Stop> {
    check_ids(call, call.args.len() - from)?;
    for place in from..call.args.len() {
        out.push(id(call.args.get(place))?);
    }
    Ok(())
}

/// Refuses too many ids, unless the primary has accepted them: earlier versions accepted more.
pub(super) fn check_ids(call: &Call<'_>, ids: usize) -> Result<(), Stop> {
    if ids > IDS_MAX && call.mode() == Mode::Decide { Err(TOO_MANY_IDS) } else { Ok(()) }
}

/// Pairs of a field and a number, between two places.
#[inline]
pub(super) fn pairs(
    call: &Call<'_>,
    schema: &Schema,
    (from, to): (usize, usize),
    out: &mut Vec<(u8, i64)>,
) -> Result<(), Stop> {
    let count = to.saturating_sub(from);
    if count == 0 || !count.is_multiple_of(2) {
        return Err(Stop::Arity);
    }
    if count / 2 > FIELDS_MAX {
        return Err(Stop::text("ERR a command has at most 256 fields for an id"));
    }
    for place in (from..to).step_by(2) {
        let number_of_field = field(schema, call.args.get(place))?;
        out.push((number_of_field, number(call.args.get(place + 1))?));
    }
    Ok(())
}

/// A field of a new schema and its width.
///
/// Not one that is called TOKEN: `TOKEN 20 TIME 50` at the end of an increment would be a token, and not two fields.
pub(super) fn new_field(name: &[u8], width: &[u8]) -> Result<Field, Stop> {
    if name.eq_ignore_ascii_case(TOKEN) {
        return Err(Stop::text("ERR a field may not be called TOKEN"));
    }
    Ok(Field::parse(name, width)?)
}

/// Packed ids, 8 bytes each.
pub(super) fn packed_ids(call: &Call<'_>, packed: &[u8], out: &mut Vec<u64>) -> Result<(), Stop> {
    let items = chunks::<8>(call, packed)?;
    out.extend(items.iter().map(|id| u64::from_le_bytes(*id)));
    Ok(())
}

/// A packed argument in items of one size.
pub(super) fn chunks<'a, const BYTES: usize>(call: &Call<'_>, packed: &'a [u8]) -> Result<&'a [[u8; BYTES]], Stop> {
    let (items, rest) = packed.as_chunks::<BYTES>();
    if !rest.is_empty() || items.is_empty() {
        return Err(Stop::invalid(&format!("a packed argument has {BYTES} bytes for each item")));
    }
    check_ids(call, items.len())?;
    Ok(items)
}

/// Refuses writes that may move too much to the aux dictionary, which has all fields of a record.
pub(super) fn check_records(ids: usize, schema: &Schema) -> Result<(), Stop> {
    if ids * schema.live().count() <= WRITTEN_MAX {
        return Ok(());
    }
    Err(Stop::text("ERR a command writes at most 16384 values: its ids times the fields of the schema"))
}

/// Refuses replies that are too large.
pub(super) fn check_values(ids: usize, schema: &Schema) -> Result<(), Stop> {
    if ids * schema.live().count() > VALUES_MAX { Err(TOO_MANY_VALUES) } else { Ok(()) }
}
