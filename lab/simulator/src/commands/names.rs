//! Commands on keys whatever their values are, and on the server.

use super::arguments::Arguments;
use super::reply::{CommandReply, bulk, count, list};
use crate::keyspace::{Bytes, Keyspace};
use redis::Value;

pub(super) fn delete(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    // One that has expired is gone already.
    let removed = arguments.from(1).filter(|key| keys.get(key).is_some() && keys.remove(key)).count();
    Ok(count(removed))
}

pub(super) fn exists(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    Ok(count(arguments.from(1).filter(|key| keys.get(key).is_some()).count()))
}

pub(super) fn kind(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let kind = keys.get(arguments.get(1)).map_or("none", |entry| entry.data.kind());
    Ok(Value::SimpleString(kind.to_owned()))
}

pub(super) fn persist(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let had_end = keys.get(arguments.get(1)).is_some_and(|entry| entry.expires_ms.is_some());
    if had_end {
        keys.expire(arguments.get(1), None);
    }
    Ok(count(usize::from(had_end)))
}

/// PEXPIRE, or EXPIRE with a unit of 1,000 ms.
pub(super) fn expire(keys: &mut Keyspace, arguments: &Arguments, unit_ms: i64) -> CommandReply {
    let lives = arguments.integer(2)?;
    if keys.get(arguments.get(1)).is_none() {
        return Ok(count(0));
    }
    if lives <= 0 {
        keys.remove(arguments.get(1));
    } else {
        let expires_ms = keys.now_ms() + (lives * unit_ms) as u64;
        keys.expire(arguments.get(1), Some(expires_ms));
    }
    Ok(count(1))
}

/// PTTL.
pub(super) fn lives_ms(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let now_ms = keys.now_ms();
    Ok(Value::Int(match keys.get(arguments.get(1)).map(|entry| entry.expires_ms) {
        None => -2,
        Some(None) => -1,
        Some(Some(at_ms)) => at_ms.saturating_sub(now_ms) as i64,
    }))
}

/// KEYS.
pub(super) fn matching(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let found: Vec<Bytes> = keys.names().into_iter().filter(|name| is_match(arguments.get(1), name)).collect();
    Ok(list(&found))
}

pub(super) fn time(keys: &mut Keyspace) -> CommandReply {
    let now_us = keys.now_us();
    let parts = [now_us / 1_000_000, now_us % 1_000_000];
    Ok(Value::Array(parts.map(|part| bulk(part.to_string().as_bytes())).into()))
}

/// PUBLISH. No subscriber is counted: the owner of the keyspace delivers.
pub(super) fn publish(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    keys.publish(arguments.get(1), arguments.get(2));
    Ok(count(0))
}

/// Whether the name matches the pattern, in which `*`, `?`, `[abc]` and `\` have their meanings.
fn is_match(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=name.len()).any(|skipped| is_match(rest, &name[skipped..])),
        ([b'?', rest @ ..], [_, name @ ..]) => is_match(rest, name),
        ([b'[', rest @ ..], [first, name @ ..]) => match rest.iter().position(|byte| *byte == b']') {
            Some(end) => rest[..end].contains(first) && is_match(&rest[end + 1..], name),
            None => false,
        },
        ([b'\\', wanted, rest @ ..], [first, name @ ..]) | ([wanted, rest @ ..], [first, name @ ..]) => {
            wanted == first && is_match(rest, name)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, name, matches) in [
            ("ts:{q/0}:*", "ts:{q/0}:body", true),
            ("ts:{q/0}:*", "ts:{q/1}:body", false),
            ("tc:{n[/:]*}:*", "tc:{n/3}:counts", true),
            ("tc:{n[/:]*}:*", "tc:{nn/3}:counts", false),
            ("a?c", "abc", true),
            ("a\\*c", "abc", false),
        ] {
            assert_eq!(is_match(pattern.as_bytes(), name.as_bytes()), matches, "{pattern} {name}");
        }
    }
}
