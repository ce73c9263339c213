//! Commands on streams.

use super::arguments::Arguments;
use super::reply::{CommandReply, bulk, count};
use crate::keyspace::{Bytes, Fault, Keyspace, Stream, StreamId};
use redis::Value;
use std::sync::Arc;

const BAD_ID: Fault = Fault::from_static("ERR Invalid stream ID specified as stream command argument");

/// An id, or only its first number: then `number` is the second.
fn id(text: &[u8], number: u64) -> Result<StreamId, Fault> {
    let text = std::str::from_utf8(text).map_err(|_| BAD_ID)?;
    let (ms, number) = match text.split_once('-') {
        Some((ms, number)) => (ms, number.parse().map_err(|_| BAD_ID)?),
        None => (text, number),
    };
    Ok(StreamId { ms: ms.parse().map_err(|_| BAD_ID)?, number })
}

/// How a stream is shortened.
enum Trim {
    /// To this number of entries.
    Length(usize),
    /// To the entries from this id on.
    From(StreamId),
}

impl Trim {
    /// MAXLEN or MINID at this argument, exact or with `~`. Returns also the argument after it.
    fn read(arguments: &Arguments, at: usize) -> Result<Option<(Trim, usize)>, Fault> {
        let by_length = arguments.is(at, "MAXLEN");
        if !by_length && !arguments.is(at, "MINID") {
            return Ok(None);
        }
        let is_rough = arguments.get(at + 1) == b"~";
        let value = at + 1 + usize::from(is_rough || arguments.get(at + 1) == b"=");
        let trim = match by_length {
            // Redis removes whole nodes of a hundred entries only: what a rough bound keeps is open.
            true if is_rough => Trim::Length(usize::MAX),
            true => Trim::Length(usize::try_from(arguments.integer(value)?).map_err(|_| Fault::NO_INTEGER)?),
            false => Trim::From(id(arguments.get(value), 0)?),
        };
        Ok(Some((trim, value + 1)))
    }

    fn apply(&self, stream: &mut Stream) -> usize {
        let before = stream.entries.len();
        let is_out = |stream: &Stream| match (self, stream.entries.front()) {
            (_, None) => false,
            (Trim::Length(length), _) => stream.entries.len() > *length,
            (Trim::From(id), Some((first, _))) => first < id,
        };
        while is_out(stream) {
            stream.entries.pop_front();
        }
        before - stream.entries.len()
    }
}

/// XADD with MAXLEN or MINID.
pub(super) fn add(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let (trim, at) = match Trim::read(arguments, 2)? {
        Some((trim, at)) => (Some(trim), at),
        None => (None, 2),
    };
    let values: Vec<Bytes> = arguments.from(at + 1).map(Bytes::from).collect();
    if values.is_empty() || values.len() % 2 == 1 {
        return Err(Fault::new("ERR wrong number of arguments for 'xadd' command"));
    }
    let wanted = match arguments.get(at) {
        b"*" => None,
        text => Some(id(text, 0)?),
    };
    if wanted == Some(StreamId::default()) {
        return Err(Fault::new("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let now_ms = keys.now_ms();
    let added = keys.change_stream(arguments.get(1), true, |stream| {
        let next = match wanted {
            None if now_ms > stream.last.ms => StreamId { ms: now_ms, number: 0 },
            None => StreamId { number: stream.last.number + 1, ..stream.last },
            Some(wanted) if wanted <= stream.last => {
                return Err(Fault::new(
                    "ERR The ID specified in XADD is equal or smaller than the target stream top item",
                ));
            }
            Some(wanted) => wanted,
        };
        stream.entries.push_back((next, Arc::new(values)));
        (stream.last, stream.added) = (next, stream.added + 1);
        if let Some(trim) = trim {
            trim.apply(stream);
        }
        Ok(next)
    })?;
    Ok(bulk(added.text().as_bytes()))
}

pub(super) fn trim(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let Some((trim, _)) = Trim::read(arguments, 2)? else { return Err(Fault::SYNTAX) };
    Ok(count(keys.change_stream(arguments.get(1), false, |stream| Ok(trim.apply(stream)))?))
}

pub(super) fn length(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    Ok(count(keys.stream(arguments.get(1))?.map_or(0, |stream| stream.entries.len())))
}

/// XINFO STREAM, of whose fields the structure of Redis's tree is left out.
pub(super) fn info(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    if !arguments.is(1, "STREAM") {
        return Err(Fault::SYNTAX);
    }
    let Some(stream) = keys.stream(arguments.get(2))? else { return Err(Fault::new("ERR no such key")) };
    let name = |name: &str| bulk(name.as_bytes());
    Ok(Value::Array(vec![
        name("length"),
        count(stream.entries.len()),
        name("last-generated-id"),
        name(&stream.last.text()),
        name("entries-added"),
        Value::Int(stream.added as i64),
        name("first-entry"),
        stream.entries.front().map_or(Value::Nil, entry),
        name("last-entry"),
        stream.entries.back().map_or(Value::Nil, entry),
    ]))
}

fn entry((id, values): &(StreamId, Arc<Vec<Bytes>>)) -> Value {
    let values = values.iter().map(|value| bulk(value)).collect();
    Value::Array(vec![bulk(id.text().as_bytes()), Value::Array(values)])
}

fn entries(stream: &Stream, from: StreamId, to: StreamId, taken: usize) -> Vec<Value> {
    let first = stream.entries.partition_point(|(id, _)| *id < from);
    stream.entries.range(first..).take_while(|(id, _)| *id <= to).take(taken).map(entry).collect()
}

/// COUNT of a range; without it, all.
fn taken(arguments: &Arguments) -> Result<usize, Fault> {
    match arguments.len() {
        4 => Ok(usize::MAX),
        6 if arguments.is(4, "COUNT") => Ok(usize::try_from(arguments.integer(5)?).unwrap_or(0)),
        _ => Err(Fault::SYNTAX),
    }
}

/// XRANGE with COUNT; the ends are part of the range.
pub(super) fn range(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let from = match arguments.get(2) {
        b"-" => StreamId::default(),
        text => id(text, 0)?,
    };
    let to = match arguments.get(3) {
        b"+" => StreamId::MAX,
        text => id(text, u64::MAX)?,
    };
    let taken = taken(arguments)?;
    Ok(Value::Array(keys.stream(arguments.get(1))?.map_or(Vec::new(), |stream| entries(stream, from, to, taken))))
}

/// XREVRANGE with COUNT; the later end comes first, and `(` leaves it out.
pub(super) fn reverse_range(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let (to, with_to) = match arguments.get(2) {
        b"+" => (StreamId::MAX, true),
        [b'(', text @ ..] => (id(text, u64::MAX)?, false),
        text => (id(text, u64::MAX)?, true),
    };
    let from = match arguments.get(3) {
        b"-" => StreamId::default(),
        text => id(text, 0)?,
    };
    let taken = taken(arguments)?;
    let Some(stream) = keys.stream(arguments.get(1))? else { return Ok(Value::Array(Vec::new())) };
    let is_in = |of: &StreamId| *of >= from && (*of < to || with_to && *of == to);
    let found = stream.entries.iter().rev().skip_while(|(id, _)| *id > to).filter(|(id, _)| is_in(id));
    Ok(Value::Array(found.take(taken).map(entry).collect()))
}

/// XREAD with COUNT. It answers at once: BLOCK is the caller's wait.
pub(super) fn read(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let (mut at, mut taken) = (1, usize::MAX);
    while !arguments.is(at, "STREAMS") {
        if at + 2 >= arguments.len() {
            return Err(Fault::SYNTAX);
        }
        if arguments.is(at, "COUNT") {
            taken = usize::try_from(arguments.integer(at + 1)?).ok().filter(|taken| *taken > 0).unwrap_or(usize::MAX);
        } else if !arguments.is(at, "BLOCK") {
            return Err(Fault::SYNTAX);
        }
        at += 2;
    }
    let first = at + 1;
    let streams = (arguments.len() - first) / 2;
    let mut found = Vec::new();
    for at in first..first + streams {
        let after = id(arguments.get(at + streams), 0)?;
        let Some(stream) = keys.stream(arguments.get(at))? else { continue };
        let from = StreamId { number: after.number + 1, ..after };
        let entries = entries(stream, from, StreamId::MAX, taken);
        if !entries.is_empty() {
            found.push(Value::Array(vec![bulk(arguments.get(at)), Value::Array(entries)]));
        }
    }
    Ok(if found.is_empty() { Value::Nil } else { Value::Array(found) })
}
