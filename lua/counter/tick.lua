#!lua flags=allow-oom
-- tick: the shard's clock shows at least this time from now on (N7): what happens later has a later time, too.
-- KEYS state   ARGV now_ms revision at_least_ms
-- RETURNS {OK, now_ms}
-- WHY: when the store's clock is set back, each shard's clock stands still where that shard last was, and clocks of
-- several machines differ. A clear is in one shard and orders the events of all shards.
--@include shard
now = math.max(now, tonumber(ARGV[3]))
S[CLOCK] = now
close_shard()
return {OK, now}
