//! The commands by name.

use super::arguments::Arguments;
use super::reply::CommandReply;
use super::{hash, list, names, ranges, set, sorted, stream, text};
use crate::keyspace::{Fault, Keyspace};
use redis::Value;

/// A command, whether it writes, and how many arguments it has at least, its name included.
type Command = (&'static str, bool, usize, fn(&mut Keyspace, &Arguments) -> CommandReply);

const READS: bool = false;
const WRITES: bool = true;

/// In order of name.
static COMMANDS: [Command; 64] = [
    ("DECRBY", WRITES, 3, |keys, arguments| text::add(keys, arguments, -1)),
    ("DEL", WRITES, 2, names::delete),
    ("EXISTS", READS, 2, names::exists),
    ("EXPIRE", WRITES, 3, |keys, arguments| names::expire(keys, arguments, 1_000)),
    ("GET", READS, 2, text::get),
    ("GETRANGE", READS, 4, text::get_range),
    ("HDEL", WRITES, 3, hash::delete),
    ("HEXISTS", READS, 3, hash::exists),
    ("HGET", READS, 3, hash::get),
    ("HGETALL", READS, 2, hash::get_all),
    ("HINCRBY", WRITES, 4, hash::add),
    ("HKEYS", READS, 2, hash::names),
    ("HLEN", READS, 2, hash::length),
    ("HMGET", READS, 3, hash::mget),
    ("HSCAN", READS, 3, hash::scan),
    ("HSET", WRITES, 4, hash::set),
    ("HSETNX", WRITES, 4, hash::set_new),
    ("HSTRLEN", READS, 3, hash::value_length),
    ("INCRBY", WRITES, 3, |keys, arguments| text::add(keys, arguments, 1)),
    ("KEYS", READS, 2, names::matching),
    ("LINDEX", READS, 3, list::at),
    ("LLEN", READS, 2, list::length),
    ("LPOP", WRITES, 2, |keys, arguments| list::pop(keys, arguments, |list| list.pop_front())),
    ("LRANGE", READS, 4, list::range),
    ("MGET", READS, 2, text::mget),
    ("PERSIST", WRITES, 2, names::persist),
    ("PEXPIRE", WRITES, 3, |keys, arguments| names::expire(keys, arguments, 1)),
    ("PING", READS, 1, |_, _| Ok(Value::SimpleString("PONG".to_owned()))),
    ("PTTL", READS, 2, names::lives_ms),
    ("PUBLISH", WRITES, 3, names::publish),
    ("RPOP", WRITES, 2, |keys, arguments| list::pop(keys, arguments, |list| list.pop_back())),
    ("RPUSH", WRITES, 3, list::push_back),
    ("SADD", WRITES, 3, set::add),
    ("SCARD", READS, 2, set::length),
    ("SET", WRITES, 3, text::set),
    ("SETRANGE", WRITES, 4, text::set_range),
    ("SISMEMBER", READS, 3, set::has),
    ("SMEMBERS", READS, 2, set::members),
    ("SMISMEMBER", READS, 3, set::has_each),
    ("SREM", WRITES, 3, set::remove),
    ("TIME", READS, 1, |keys, _| names::time(keys)),
    ("TYPE", READS, 2, names::kind),
    ("UNLINK", WRITES, 2, names::delete),
    ("XADD", WRITES, 5, stream::add),
    ("XINFO", READS, 3, stream::info),
    ("XLEN", READS, 2, stream::length),
    ("XRANGE", READS, 4, stream::range),
    ("XREAD", READS, 4, stream::read),
    ("XREVRANGE", READS, 4, stream::reverse_range),
    ("XTRIM", WRITES, 4, stream::trim),
    ("ZADD", WRITES, 4, sorted::add),
    ("ZCARD", READS, 2, sorted::length),
    ("ZCOUNT", READS, 4, ranges::count_by_score),
    ("ZLEXCOUNT", READS, 4, ranges::count_by_lex),
    ("ZMSCORE", READS, 3, sorted::scores_of),
    ("ZRANGE", READS, 4, ranges::range),
    ("ZRANGEBYLEX", READS, 4, ranges::range_by_lex),
    ("ZRANGEBYSCORE", READS, 4, ranges::range_by_score),
    ("ZRANK", READS, 3, sorted::rank),
    ("ZREM", WRITES, 3, sorted::remove),
    ("ZREMRANGEBYRANK", WRITES, 4, ranges::remove_by_rank),
    ("ZREMRANGEBYSCORE", WRITES, 4, ranges::remove_by_score),
    ("ZSCAN", READS, 3, sorted::scan),
    ("ZSCORE", READS, 3, sorted::score_of),
];
const NAME_BYTES_MAX: usize = 16;

fn find(name: &[u8]) -> Option<&'static Command> {
    let mut upper = [0; NAME_BYTES_MAX];
    let upper = upper.get_mut(..name.len())?;
    upper.copy_from_slice(name);
    upper.make_ascii_uppercase();
    let upper = &*upper;
    COMMANDS.binary_search_by(|(name, ..)| name.as_bytes().cmp(upper)).ok().map(|at| &COMMANDS[at])
}

/// Whether a command may change something.
pub(crate) fn is_write(name: &[u8]) -> bool {
    find(name).is_some_and(|(_, writes, ..)| *writes)
}

/// Executes one command.
pub(crate) fn execute(keys: &mut Keyspace, arguments: &Arguments) -> CommandReply {
    let Some((name, _, arguments_min, command)) = find(arguments.get(0)) else {
        let name = String::from_utf8_lossy(arguments.get(0)).into_owned();
        return Err(Fault::new(format!("ERR unknown command '{name}'")));
    };
    if arguments.len() < *arguments_min {
        let name = name.to_ascii_lowercase();
        return Err(Fault::new(format!("ERR wrong number of arguments for '{name}' command")));
    }
    command(keys, arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found() {
        for (name, ..) in &COMMANDS {
            assert_eq!(find(name.to_ascii_lowercase().as_bytes()).map(|found| found.0), Some(*name));
        }
        assert!(find(b"FLUSHALL").is_none() && find(b"A-NAME-WITH-TOO-MANY-BYTES").is_none());
    }
}
