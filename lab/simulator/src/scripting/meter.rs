//! Counts what script calls make the store do (X5): commands, and the bytes that these touch.

use crate::commands::Arguments;
use crate::keyspace::{Data, Keyspace};
use redis::Value;
use std::collections::BTreeMap;

/// Commands, and the bytes that they touch: names, fields, members and values that a command is given or replies with, and
/// what else it has to walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Commands.
    pub commands: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Work {
    fn add(&mut self, bytes: u64) {
        self.commands += 1;
        self.bytes += bytes;
    }
}

/// One call of a script.
#[derive(Clone, Debug, Default)]
pub struct Metered {
    /// The hash of the script.
    pub sha1: String,
    /// EVALSHA and its arguments.
    pub command: Vec<Vec<u8>>,
    /// The bytes of its keys and arguments.
    pub request_bytes: u64,
    /// The bytes of its reply; 0: an error.
    pub reply_bytes: u64,
    /// What it made the store do.
    pub work: Work,
    /// The same by command.
    pub by_command: BTreeMap<String, Work>,
}

/// The calls since the meter was started.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    calls: Vec<Metered>,
    current: Metered,
}

impl Meter {
    pub(crate) fn begin(&mut self, sha1: &str, arguments: &Arguments) {
        let request_bytes = arguments.from(3).map(|argument| argument.len() as u64).sum();
        let command = arguments.from(0).map(<[u8]>::to_vec).collect();
        self.current = Metered { sha1: sha1.to_owned(), command, request_bytes, ..Metered::default() };
    }

    /// A command that is about to be executed.
    pub(crate) fn command(&mut self, keys: &mut Keyspace, arguments: &Arguments) {
        let name = String::from_utf8_lossy(arguments.get(0)).to_ascii_uppercase();
        let given: u64 = arguments.from(1).map(|argument| argument.len() as u64).sum();
        let bytes = given + walked(&name, keys, arguments);
        self.current.work.add(bytes);
        self.current.by_command.entry(name).or_default().add(bytes);
    }

    /// What it replies.
    pub(crate) fn reply(&mut self, arguments: &Arguments, reply: &Value) {
        let bytes = bytes_of(reply);
        self.current.work.bytes += bytes;
        let name = String::from_utf8_lossy(arguments.get(0)).to_ascii_uppercase();
        self.current.by_command.entry(name).or_default().bytes += bytes;
    }

    pub(crate) fn end(&mut self, reply: Option<&Value>) {
        let mut ended = std::mem::take(&mut self.current);
        ended.reply_bytes = reply.map_or(0, bytes_of);
        self.calls.push(ended);
    }

    pub(crate) fn into_calls(self) -> Vec<Metered> {
        self.calls
    }
}

/// Numbers count as their digits at most.
const NUMBER_BYTES: u64 = 8;
/// One block of a list or a stream, on the way to another.
const LINK_BYTES: u64 = 32;

fn bytes_of(reply: &Value) -> u64 {
    match reply {
        Value::Int(_) => NUMBER_BYTES,
        Value::BulkString(bytes) => bytes.len() as u64,
        Value::SimpleString(text) => text.len() as u64,
        Value::Array(items) => items.iter().map(bytes_of).sum(),
        _ => 1,
    }
}

/// The bytes of elements that a command visits and that are neither its arguments nor in its reply. UNLINK visits none: Redis
/// frees them in another thread. What a tree or a table finds in a few steps counts as nothing.
fn walked(name: &str, keys: &mut Keyspace, arguments: &Arguments) -> u64 {
    match name {
        "DEL" => arguments.from(1).map(|key| keys.get(key).map_or(0, |entry| whole(&entry.data))).sum(),
        "KEYS" => keys.names().iter().map(|name| name.len() as u64).sum(),
        "XTRIM" => dropped(keys, arguments),
        "ZREMRANGEBYRANK" => removed(keys, arguments),
        "LRANGE" | "LINDEX" => skipped(keys, arguments),
        _ => 0,
    }
}

fn whole(data: &Data) -> u64 {
    let sum = |sizes: &mut dyn Iterator<Item = usize>| sizes.sum::<usize>() as u64;
    match data {
        // One block.
        Data::Text(_) => 0,
        Data::Hash(hash) => sum(&mut hash.iter().map(|(field, value)| field.len() + value.len())),
        Data::Sorted(sorted) => sum(&mut sorted.ordered().map(|(member, _)| member.len())),
        Data::Set(set) => sum(&mut set.iter().map(|member| member.len())),
        Data::List(list) => sum(&mut list.iter().map(|item| item.len())),
        Data::Stream(stream) => blocks(stream.entries.iter().map(entry_bytes)) * LINK_BYTES,
    }
}

fn entry_bytes<I>((_, values): &(I, std::sync::Arc<Vec<crate::keyspace::Bytes>>)) -> usize {
    values.iter().map(|value| value.len()).sum()
}

/// Of XTRIM MINID: Redis keeps entries in blocks, and frees a block without reading what is in it.
fn dropped(keys: &mut Keyspace, arguments: &Arguments) -> u64 {
    let Ok(Some(stream)) = keys.stream(arguments.get(1)) else { return 0 };
    let text = String::from_utf8_lossy(arguments.get(arguments.len() - 1)).into_owned();
    let (ms, number) = text.split_once('-').unwrap_or((&text, "0"));
    let first = (ms.parse().unwrap_or(u64::MAX), number.parse().unwrap_or(0));
    let entries = stream.entries.iter().take_while(|(id, _)| (id.ms, id.number) < first);
    blocks(entries.map(entry_bytes)) * LINK_BYTES
}

/// The blocks that entries of these sizes fill.
fn blocks(sizes: impl Iterator<Item = usize>) -> u64 {
    const BLOCK_BYTES: usize = 4_096;
    const BLOCK_ENTRIES: usize = 100;
    let (mut blocks, mut bytes, mut entries) = (0, 0, 0);
    for size in sizes {
        if entries == 0 {
            blocks += 1;
        }
        (bytes, entries) = (bytes + size, entries + 1);
        if bytes >= BLOCK_BYTES || entries == BLOCK_ENTRIES {
            (bytes, entries) = (0, 0);
        }
    }
    blocks
}

fn removed(keys: &mut Keyspace, arguments: &Arguments) -> u64 {
    let (Ok(from), Ok(to)) = (arguments.integer(2), arguments.integer(3)) else { return 0 };
    let Ok(Some(sorted)) = keys.sorted(arguments.get(1)) else { return 0 };
    let taken = usize::try_from(to - from + 1).unwrap_or(usize::MAX);
    let members = sorted.ordered().skip(from.max(0) as usize).take(taken);
    members.map(|(member, _)| member.len()).sum::<usize>() as u64
}

/// A list is a chain of blocks: those before the first element that is read, from the nearer end.
fn skipped(keys: &mut Keyspace, arguments: &Arguments) -> u64 {
    const BLOCK_ITEMS: usize = 32;
    let Ok(Some(list)) = keys.list(arguments.get(1)) else { return 0 };
    let from = arguments.integer(2).unwrap_or(0);
    let from = if from < 0 { list.len().saturating_sub(from.unsigned_abs() as usize) } else { from as usize };
    let steps = from.min(list.len().saturating_sub(from)) / BLOCK_ITEMS;
    steps as u64 * LINK_BYTES
}

#[cfg(test)]
mod tests {
    use crate::SimulatedRedis;

    #[test]
    fn a_call_counts_its_commands_and_what_they_touch() {
        let redis = SimulatedRedis::new(0);
        let metered = |body: &str, argument: &str| {
            let text = format!("local key, text = KEYS[1], ARGV[1]\n{body}\nreturn 'ok'");
            let (sha1, _) = redis.execute(redis::cmd("SCRIPT").arg("LOAD").arg(text));
            let sha1: String = redis::from_redis_value(sha1.expect("a script")).expect("its hash");
            redis.start_meter();
            let (reply, _) = redis.execute(redis::cmd("EVALSHA").arg(&sha1).arg(1).arg("k").arg(argument));
            reply.expect("a reply");
            let call = redis.take_meter().remove(0);
            assert_eq!((call.sha1, call.request_bytes, call.reply_bytes), (sha1, 1 + argument.len() as u64, 2));
            (call.work.commands, call.work.bytes)
        };
        let text = "0123456789";
        assert_eq!(metered("", text), (0, 0));
        // Key, field, value; the number of new fields.
        assert_eq!(metered("redis.call('HSET', key, 'f', text)", text), (1, 1 + 1 + 10 + 8));
        assert_eq!(metered("redis.call('HGETALL', key)", text), (1, 1 + 1 + 10));
        assert_eq!(metered("redis.call('HLEN', key) redis.call('HGET', key, 'f')", text), (2, 1 + 8 + 1 + 1 + 10));
        // Only DEL walks what it deletes.
        assert_eq!(metered("redis.call('UNLINK', key)", text), (1, 1 + 8));
        assert_eq!(metered("redis.call('HSET', key, 'f', text) redis.call('DEL', key)", text), (2, 20 + 1 + 11 + 8));
        let pushes = "for _ = 1, 64 do redis.call('RPUSH', key, text) end";
        assert_eq!(metered(pushes, text), (64, 64 * (1 + 10 + 8)));
        assert_eq!(metered("redis.call('LRANGE', key, 0, 1)", text), (1, 1 + 1 + 1 + 20));
        assert_eq!(metered("redis.call('LINDEX', key, 32)", text), (1, 1 + 2 + 10 + 32), "one block before it");
    }
}
