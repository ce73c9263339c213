//! Commands on strings.

use super::arguments::{Arguments, integer};
use super::reply::{CommandReply, bulk, count, optional, positions};
use crate::keyspace::{Bytes, Data, Entry, Fault, Keyspace};
use redis::Value;

pub(super) fn get(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    Ok(optional(keys.text(arguments.get(1))?))
}

pub(super) fn mget(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    // A key of another type counts as absent.
    let values = arguments.from(1).map(|key| keys.text(key).map_or(Value::Nil, optional));
    Ok(Value::Array(values.collect()))
}

/// SET with NX, XX, PX, EX.
pub(super) fn set(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let (mut only_new, mut only_old, mut lives_ms) = (false, false, None);
    let mut at = 3;
    while at < arguments.len() {
        match () {
            () if arguments.is(at, "NX") => only_new = true,
            () if arguments.is(at, "XX") => only_old = true,
            () if (arguments.is(at, "PX") || arguments.is(at, "EX")) && at + 1 < arguments.len() => {
                let unit_ms = if arguments.is(at, "EX") { 1_000 } else { 1 };
                let lives = arguments.integer(at + 1)?;
                if lives <= 0 {
                    return Err(Fault::new("ERR invalid expire time in 'set' command"));
                }
                lives_ms = Some(lives as u64 * unit_ms);
                at += 1;
            }
            () => return Err(Fault::SYNTAX),
        }
        at += 1;
    }
    let exists = keys.get(arguments.get(1)).is_some();
    if (only_new && exists) || (only_old && !exists) {
        return Ok(Value::Nil);
    }
    let expires_ms = lives_ms.map(|lives_ms| keys.now_ms() + lives_ms);
    keys.put(arguments.get(1), Entry { data: Data::Text(arguments.get(2).into()), expires_ms });
    Ok(Value::Okay)
}

pub(super) fn get_range(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let (from, to) = (arguments.integer(2)?, arguments.integer(3)?);
    let Some(text) = keys.text(arguments.get(1))? else { return Ok(bulk(&[])) };
    if from < 0 && to < 0 && from > to {
        return Ok(bulk(&[]));
    }
    // Not as in other ranges: an end before the first byte is the first byte.
    let to = if to < 0 { (to + text.len() as i64).max(0) } else { to };
    Ok(bulk(&text[positions(from, to, text.len())]))
}

pub(super) fn set_range(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let offset = arguments.integer(2)?;
    if offset < 0 {
        return Err(Fault::new("ERR offset is out of range"));
    }
    let (offset, part) = (offset as usize, arguments.get(3));
    let mut text = keys.text(arguments.get(1))?.map_or(Vec::new(), |text| text.to_vec());
    if part.is_empty() {
        return Ok(count(text.len()));
    }
    text.resize(text.len().max(offset + part.len()), 0);
    text[offset..offset + part.len()].copy_from_slice(part);
    let length = text.len();
    replace(keys, arguments.get(1), text.into());
    Ok(count(length))
}

/// INCRBY, or DECRBY with `sign` -1.
pub(super) fn add(keys: &mut Keyspace, arguments: &Arguments, sign: i64) -> CommandReply {
    let by = arguments.integer(2)?.checked_mul(sign).ok_or(Fault::NO_INTEGER)?;
    let before = match keys.text(arguments.get(1))? {
        Some(text) => integer(text).ok_or(Fault::NO_INTEGER)?,
        None => 0,
    };
    let sum = before.checked_add(by).ok_or(Fault::new("ERR increment or decrement would overflow"))?;
    replace(keys, arguments.get(1), sum.to_string().as_bytes().into());
    Ok(Value::Int(sum))
}

/// A new value, which expires when the old one would have.
fn replace(keys: &mut Keyspace, key: &[u8], text: Bytes) {
    let expires_ms = keys.get(key).and_then(|entry| entry.expires_ms);
    keys.put(key, Entry { data: Data::Text(text), expires_ms });
}
