//! Writes that Redis records as a transaction, although they are small: scripts with two writes. A Redis whose user `default` may
//! not execute the commands of its append-only file drops every transaction of it at its next start, and executes single commands
//! (`acl`). What says whether the data is there has to go with the data. What says that it is not must stay: one write.

use redis::{Cmd, Script};

/// Gives a store the mark ARGV 1, if it has none.
pub(crate) const CHOOSE: &str = "#!lua
if redis.call('HSETNX', KEYS[1], 'id', ARGV[1]) == 1 then
    local time = redis.call('TIME')
    redis.call('HSET', KEYS[1], 'beat', 0, 'born', time[1] * 1000 + math.floor(time[2] / 1000))
end
";

/// Raises the beat of a mark, and returns it. The second write changes nothing: it makes the transaction.
pub(crate) const BEAT: &str = "#!lua
local beat = redis.call('HINCRBY', KEYS[1], 'beat', 1)
redis.call('HSET', KEYS[1], 'beat', beat)
return beat
";

/// Replaces the marks ARGV 2 (with spaces between them) by ARGV 1. Every process refuses calls as long as the mark has the field
/// `lost`.
pub(crate) const ACCEPT: &str = "#!lua
redis.call('HSET', KEYS[1], 'id', ARGV[1], 'replaces', ARGV[2], 'beat', 0)
redis.call('HDEL', KEYS[1], 'lost', 'objections')
";

/// Objects to the mark ARGV 1 for a process that knows ARGV 2. Stops the store with the field `lost` if its mark is at most ARGV 4 ms
/// old (-1: writes nothing); else the objection stops no process. Returns 2 if the store is stopped, else 1 if its mark is at most
/// ARGV 3 ms old, else 0. One write, so no transaction: it must survive, as `lost` does. A clock that was set back makes no mark new.
pub(crate) const OBJECT: &str = "#!lua
local mark = redis.call('HMGET', KEYS[1], 'id', 'born', 'lost', 'objections')
if mark[1] ~= ARGV[1] then return 0 end
local time = redis.call('TIME')
local age = math.abs(time[1] * 1000 + math.floor(time[2] / 1000) - tonumber(mark[2] or 0))
local verdict = age <= tonumber(ARGV[3]) and 1 or 0
if ARGV[4] == '-1' then return verdict end
if age <= tonumber(ARGV[4]) and not mark[3] then
    redis.call('HSET', KEYS[1], 'lost', ARGV[2])
    return 2
end
local known = mark[4] or ''
if mark[3] ~= ARGV[2] and not string.find(' ' .. known .. ' ', ' ' .. ARGV[2] .. ' ', 1, true) then
    if #known > 300 then known = string.gsub(known, '^%S+ ?', '') end
    redis.call('HSET', KEYS[1], 'objections', known == '' and ARGV[2] or known .. ' ' .. ARGV[2])
end
return mark[3] and 2 or verdict
";

/// Writes the number ARGV 1 where there is none. The second write changes nothing: it makes the transaction.
pub(crate) const NUMBER: &str = "#!lua
if redis.call('SET', KEYS[1], ARGV[1], 'NX') then
    redis.call('SET', KEYS[1], ARGV[1])
end
";

/// All of them: what a link that calls one has to load.
pub(crate) const ALL: [&str; 5] = [CHOOSE, BEAT, ACCEPT, OBJECT, NUMBER];

/// The call of one of them on this key, for [`Link::eval`](crate::Link::eval).
pub(crate) fn call(text: &str, key: &str) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(Script::new(text).get_hash()).arg(1).arg(key);
    command
}
