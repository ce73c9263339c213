//! HSCAN and ZSCAN: pages in the order of a hash of the members, so that what stays during a walk is met once.

use super::arguments::Arguments;
use super::reply::bulk;
use crate::keyspace::{Bytes, Fault};
use redis::Value;

/// Cursors stay below 2^48: scripts and clients may read them as numbers.
const CURSOR_BITS: u32 = 48;

/// The arguments after the key.
pub(super) struct Scan {
    cursor: u64,
    count: usize,
}

impl Scan {
    pub(super) fn read(arguments: &Arguments) -> Result<Scan, Fault> {
        let text = std::str::from_utf8(arguments.get(2)).ok();
        let cursor = text.and_then(|text| text.parse().ok()).ok_or(Fault::new("ERR invalid cursor"))?;
        let count = match arguments.len() {
            3 => 10,
            5 if arguments.is(3, "COUNT") => arguments.integer(4)?,
            _ => return Err(Fault::SYNTAX),
        };
        if count < 1 {
            return Err(Fault::SYNTAX);
        }
        Ok(Scan { cursor, count: count as usize })
    }
}

/// One page: the next cursor, then members with their values.
pub(super) fn page<'a>(scan: &Scan, entries: impl Iterator<Item = (&'a Bytes, Value)>) -> Value {
    let placed = entries.map(|(member, value)| (place(member), member, value));
    let mut left: Vec<_> = placed.filter(|(place, ..)| *place >= scan.cursor).collect();
    left.sort_by_key(|(place, ..)| *place);
    let mut taken = left.len().min(scan.count);
    // Members of one place stay together.
    while taken < left.len() && left[taken].0 == left[taken - 1].0 {
        taken += 1;
    }
    let cursor = left.get(taken).map_or(0, |(place, ..)| *place);
    let items = left.drain(..taken).flat_map(|(_, member, value)| [bulk(member), value]).collect();
    Value::Array(vec![bulk(cursor.to_string().as_bytes()), Value::Array(items)])
}

/// FNV-1a; never 0, which is the first cursor.
fn place(member: &[u8]) -> u64 {
    let hash = member
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    (hash >> (u64::BITS - CURSOR_BITS)).max(1)
}
