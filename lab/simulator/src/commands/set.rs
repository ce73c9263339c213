//! Commands on sets.

use super::arguments::Arguments;
use super::reply::{CommandReply, count, list};
use crate::keyspace::Keyspace;
use redis::Value;

pub(super) fn add(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let mut added = 0;
    for member in arguments.from(2) {
        added += usize::from(!keys.put_member(arguments.get(1), member, true)?);
    }
    Ok(count(added))
}

pub(super) fn remove(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let mut removed = 0;
    for member in arguments.from(2) {
        removed += usize::from(keys.put_member(arguments.get(1), member, false)?);
    }
    Ok(count(removed))
}

pub(super) fn members(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    Ok(list(keys.set(arguments.get(1))?.into_iter().flatten()))
}

pub(super) fn length(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    Ok(count(keys.set(arguments.get(1))?.map_or(0, |set| set.len())))
}

pub(super) fn has(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let set = keys.set(arguments.get(1))?;
    Ok(count(usize::from(set.is_some_and(|set| set.contains(arguments.get(2))))))
}

pub(super) fn has_each(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let set = keys.set(arguments.get(1))?;
    let has = arguments.from(2).map(|member| count(usize::from(set.is_some_and(|set| set.contains(member)))));
    Ok(Value::Array(has.collect()))
}
