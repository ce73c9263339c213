//! Writes that Redis records as a transaction, although they are small: scripts with two writes. A Redis whose user `default` may
//! not execute the commands of its append-only file drops every transaction of it at its next start, and executes single commands
//! (`acl`). What says whether the data is there has to go with the data.

use redis::{Cmd, Script};

/// Gives a store the mark ARGV 1, if it has none.
pub(crate) const CHOOSE: &str = "#!lua
if redis.call('HSETNX', KEYS[1], 'id', ARGV[1]) == 1 then
    redis.call('HSET', KEYS[1], 'beat', 0)
end
";

/// Raises the beat of a mark, and returns it. The second write changes nothing: it makes the transaction.
pub(crate) const BEAT: &str = "#!lua
local beat = redis.call('HINCRBY', KEYS[1], 'beat', 1)
redis.call('HSET', KEYS[1], 'beat', beat)
return beat
";

/// Replaces the mark ARGV 2 by ARGV 1. Every process refuses calls as long as the mark has the field `lost`.
pub(crate) const ACCEPT: &str = "#!lua
redis.call('HSET', KEYS[1], 'id', ARGV[1], 'replaces', ARGV[2], 'beat', 0)
redis.call('HDEL', KEYS[1], 'lost')
";

/// Writes the number ARGV 1 where there is none. The second write changes nothing: it makes the transaction.
pub(crate) const NUMBER: &str = "#!lua
if redis.call('SET', KEYS[1], ARGV[1], 'NX') then
    redis.call('SET', KEYS[1], ARGV[1])
end
";

/// All of them: what a link that calls one has to load.
pub(crate) const ALL: [&str; 4] = [CHOOSE, BEAT, ACCEPT, NUMBER];

/// The call of one of them on this key, for [`Link::eval`](crate::Link::eval).
pub(crate) fn call(text: &str, key: &str) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(Script::new(text).get_hash()).arg(1).arg(key);
    command
}
