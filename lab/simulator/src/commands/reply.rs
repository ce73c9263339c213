//! Replies of commands.

use crate::keyspace::{Bytes, Fault};
use redis::Value;

/// A command's reply.
pub(crate) type CommandReply = Result<Value, Fault>;

pub(crate) fn bulk(bytes: &[u8]) -> Value {
    Value::BulkString(bytes.to_vec())
}

pub(crate) fn optional(bytes: Option<&Bytes>) -> Value {
    bytes.map_or(Value::Nil, |bytes| bulk(bytes))
}

pub(crate) fn count(number: usize) -> Value {
    Value::Int(number as i64)
}

pub(crate) fn list<'a>(items: impl IntoIterator<Item = &'a Bytes>) -> Value {
    Value::Array(items.into_iter().map(|item| bulk(item)).collect())
}

/// The positions that a range from `from` to `to` has in a list of this length; negative ones count from its end.
pub(crate) fn positions(from: i64, to: i64, length: usize) -> std::ops::Range<usize> {
    let length = length as i64;
    let absolute = |at: i64| if at < 0 { at + length } else { at };
    let (from, to) = (absolute(from).max(0), absolute(to).min(length - 1));
    if from > to { 0..0 } else { from as usize..to as usize + 1 }
}
