//! One shard of a namespace of counters on a simulated Redis, whose state a case fills up to its limits.

use crate::simulator::bounds::real::{self, Measured};
use redis::Value;
use std::ops::Range;
use tallystone_lua::counter::*;
use tallystone_model::limits::COUNTER_BYTES_MAX;
use tallystone_simulator::SimulatedRedis;

pub(crate) const NOW_MS: u64 = 1_780_000_000_000;
pub(crate) const NOW_WINDOW: u64 = NOW_MS / WINDOW_MS;
pub(crate) const REVISION: u64 = 1;
/// The windows of a chunk of a pending record (`lua/counter/lib/pending.lua`).
const CHUNK_WINDOWS: usize = 64;

pub(crate) struct Space {
    redis: SimulatedRedis,
    pub(crate) keys: CounterShardKeys,
}

pub(crate) fn counter(number: usize) -> Vec<u8> {
    format!("{number:c>COUNTER_BYTES_MAX$}").into_bytes()
}

pub(crate) fn digits(number: impl std::fmt::Display) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// A number in its last `bytes` bytes.
pub(crate) fn be<const BYTES: usize>(number: u64) -> [u8; BYTES] {
    let mut out = [0; BYTES];
    out.copy_from_slice(&number.to_be_bytes()[8 - BYTES..]);
    out
}

/// A checkpoint that is exact to this time.
pub(crate) fn checkpoint(exact_to_ms: u64, leased_at_ms: u64) -> Vec<u8> {
    let (count, token) = (be::<8>(1), be::<7>(1));
    [&count[..], &be::<6>(exact_to_ms), &be::<6>(exact_to_ms), &be::<6>(leased_at_ms), &token].concat()
}

impl Space {
    pub(crate) fn new() -> Space {
        let redis = SimulatedRedis::new(0);
        for script in CounterScript::ALL {
            let (loaded, _) = redis.execute(redis::cmd("SCRIPT").arg("LOAD").arg(script.source()));
            loaded.expect("a script");
        }
        let space = Space { redis, keys: CounterShardKeys::new("n", 0) };
        space.call(CounterScript::Configure, &space.keys.log(), &[digits(NOW_MS), digits(REVISION)]);
        space
    }

    pub(crate) fn call(&self, script: CounterScript, keys: &[String], arguments: &[Vec<u8>]) -> Value {
        let mut command = redis::cmd("EVALSHA");
        command.arg(script.sha1()).arg(keys.len()).arg(keys).arg(arguments);
        let (reply, _) = self.redis.execute(&command);
        let reply = reply.and_then(Value::extract_error).expect("a script that runs");
        let Value::Array(items) = &reply else { panic!("a list") };
        assert_eq!(items.first(), Some(&Value::Int(CounterAnswer::Ok as i64)), "{}", script.name());
        reply
    }

    pub(crate) fn metered(&self, script: CounterScript, keys: &[String], arguments: &[Vec<u8>]) -> Vec<Measured> {
        let state = real::url().map(|_| self.redis.keyspace().commands()).unwrap_or_default();
        self.redis.start_meter();
        self.call(script, keys, arguments);
        real::measured(&state, self.redis.take_meter(), script.sha1())
    }

    pub(crate) fn raw<W: AsRef<[u8]>>(&self, command: &str, key: &str, words: impl IntoIterator<Item = W>) {
        let mut built = redis::cmd(command);
        built.arg(key);
        words.into_iter().for_each(|word| {
            built.arg(word.as_ref());
        });
        let (reply, _) = self.redis.execute(&built);
        reply.and_then(Value::extract_error).expect("a command that fits the key");
    }

    /// What is pending of a counter: these windows, the latest in its field, as many as a chunk has in the field of older ones, the
    /// others in chunks.
    pub(crate) fn fill_pending(&self, counter: &[u8], windows: Range<u64>) {
        let latest = windows.end - 1;
        let entries = windows.rev().map(|window| {
            let (sum, size) = (be::<8>(1), be::<8>(1));
            [&be::<5>(window)[..], &sum, &size, &[0; 6]].concat()
        });
        let entries: Vec<Vec<u8>> = entries.collect();
        let (key, sizes) = (self.keys.key("pending"), be::<8>(entries.len() as u64));
        let flags = if entries.len() > 1 { HAS_OLDER } else { 0 };
        let head = [&be::<6>(latest * WINDOW_MS)[..], &[flags], &[0; 6], &sizes, &entries[0]].concat();
        self.raw("HSET", &key, [counter, &head]);
        let (older, in_chunks) = entries[1..].split_at(CHUNK_WINDOWS.min(entries.len() - 1));
        if !older.is_empty() {
            let mut value = older.concat();
            if !in_chunks.is_empty() {
                value.extend([be::<4>(1), be::<4>(in_chunks.chunks(CHUNK_WINDOWS).len() as u64)].concat());
            }
            self.raw("HSET", &key, [[&[OLDER_FIELD as u8], counter].concat(), value]);
        }
        for (chunk, number) in in_chunks.rchunks(CHUNK_WINDOWS).zip(1..) {
            let field = format!("{OLDER_FIELD}{number}{OLDER_FIELD}");
            self.raw("HSET", &key, [[field.as_bytes(), counter].concat(), chunk.concat()]);
        }
        let since = (latest + 1) * WINDOW_MS;
        self.raw("ZADD", &self.keys.key("dirty"), [&digits(since), counter]);
    }

    /// As many layouts of slots.
    pub(crate) fn fill_layout(&self, count: u64) {
        let entry = |number: u64| [&be::<5>(number)[..], &be::<4>(SLOTS_MIN)].concat();
        let layout: Vec<Vec<u8>> = (0..count).map(entry).collect();
        self.raw("SET", &self.keys.key("layout"), [layout.concat()]);
    }

    pub(crate) fn fill_checkpoint(&self, counter: &[u8], exact_to_ms: u64, is_deleted: bool) {
        let mut value = checkpoint(exact_to_ms, NOW_MS - 1);
        if is_deleted {
            value.push(DELETED_BYTE);
            self.raw("ZADD", &self.keys.key(DELETED), [&digits(exact_to_ms), counter]);
        }
        self.raw("HSET", &self.keys.counts(), [counter, &value]);
    }
}
