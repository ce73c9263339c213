//! Commands on lists.

use super::arguments::Arguments;
use super::reply::{CommandReply, bulk, count, list, optional, positions};
use crate::keyspace::{Bytes, Fault, Keyspace};
use redis::Value;
use std::collections::VecDeque;

pub(super) fn push_back(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let length = keys.change_list(arguments.get(1), true, |list| {
        list.extend(arguments.from(2).map(Bytes::from));
        list.len()
    })?;
    Ok(count(length))
}

/// LPOP or RPOP, with a count or without.
pub(super) fn pop(
    keys: &mut Keyspace,
    arguments: &Arguments,
    one: fn(&mut VecDeque<Bytes>) -> Option<Bytes>,
) -> CommandReply {
    if arguments.len() < 3 {
        return Ok(optional(keys.change_list(arguments.get(1), false, one)?.as_ref()));
    }
    // Redis reads the count before the key.
    let wanted = arguments.integer(2)?;
    if wanted < 0 {
        return Err(Fault::new("ERR value is out of range, must be positive"));
    }
    if keys.list(arguments.get(1))?.is_none() {
        return Ok(Value::Nil);
    }
    let popped =
        keys.change_list(arguments.get(1), false, |list| (0..wanted).map_while(|_| one(list)).collect::<Vec<Bytes>>())?;
    Ok(list(&popped))
}

pub(super) fn at(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let Some(list) = keys.list(arguments.get(1))? else { return Ok(Value::Nil) };
    let at = arguments.integer(2)?;
    let at = if at < 0 { at + list.len() as i64 } else { at };
    Ok(usize::try_from(at).ok().and_then(|at| list.get(at)).map_or(Value::Nil, |item| bulk(item)))
}

pub(super) fn range(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let (from, to) = (arguments.integer(2)?, arguments.integer(3)?);
    let Some(items) = keys.list(arguments.get(1))? else { return Ok(Value::Array(Vec::new())) };
    Ok(list(items.range(positions(from, to, items.len()))))
}

pub(super) fn length(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    Ok(count(keys.list(arguments.get(1))?.map_or(0, |list| list.len())))
}
