//! Commands on hashes.

use super::arguments::{Arguments, integer};
use super::reply::{CommandReply, bulk, count, list, optional};
use super::scan::{Scan, page};
use crate::keyspace::{Fault, Keyspace};
use redis::Value;

pub(super) fn get(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let hash = keys.hash(arguments.get(1))?;
    Ok(optional(hash.and_then(|hash| hash.get(arguments.get(2)))))
}

pub(super) fn mget(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let hash = keys.hash(arguments.get(1))?;
    let values = arguments.from(2).map(|field| optional(hash.and_then(|hash| hash.get(field))));
    Ok(Value::Array(values.collect()))
}

pub(super) fn get_all(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let hash = keys.hash(arguments.get(1))?;
    Ok(list(hash.into_iter().flatten().flat_map(|(field, value)| [field, value])))
}

pub(super) fn names(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let hash = keys.hash(arguments.get(1))?;
    Ok(list(hash.into_iter().flatten().map(|(field, _)| field)))
}

pub(super) fn set(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    if arguments.len() % 2 == 1 {
        return Err(Fault::new("ERR wrong number of arguments for 'hset' command"));
    }
    let mut added = 0;
    for at in (2..arguments.len()).step_by(2) {
        let before = keys.put_field(arguments.get(1), arguments.get(at), Some(arguments.get(at + 1)))?;
        added += usize::from(before.is_none());
    }
    Ok(count(added))
}

pub(super) fn set_new(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    if keys.hash(arguments.get(1))?.is_some_and(|hash| hash.contains_key(arguments.get(2))) {
        return Ok(Value::Int(0));
    }
    keys.put_field(arguments.get(1), arguments.get(2), Some(arguments.get(3)))?;
    Ok(Value::Int(1))
}

pub(super) fn delete(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let mut removed = 0;
    for field in arguments.from(2) {
        removed += usize::from(keys.put_field(arguments.get(1), field, None)?.is_some());
    }
    Ok(count(removed))
}

pub(super) fn exists(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let hash = keys.hash(arguments.get(1))?;
    Ok(count(usize::from(hash.is_some_and(|hash| hash.contains_key(arguments.get(2))))))
}

pub(super) fn length(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    Ok(count(keys.hash(arguments.get(1))?.map_or(0, |hash| hash.len())))
}

pub(super) fn value_length(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let hash = keys.hash(arguments.get(1))?;
    Ok(count(hash.and_then(|hash| hash.get(arguments.get(2))).map_or(0, |value| value.len())))
}

pub(super) fn add(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let by = arguments.integer(3)?;
    let before = match keys.hash(arguments.get(1))?.and_then(|hash| hash.get(arguments.get(2))) {
        Some(text) => integer(text).ok_or(Fault::new("ERR hash value is not an integer"))?,
        None => 0,
    };
    let sum = before.checked_add(by).ok_or(Fault::new("ERR increment or decrement would overflow"))?;
    keys.put_field(arguments.get(1), arguments.get(2), Some(sum.to_string().as_bytes()))?;
    Ok(Value::Int(sum))
}

pub(super) fn scan(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let scan = Scan::read(arguments)?;
    let hash = keys.hash(arguments.get(1))?;
    let entries = hash.into_iter().flatten().map(|(field, value)| (field, bulk(value)));
    Ok(page(&scan, entries))
}
