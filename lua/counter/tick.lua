#!lua flags=allow-oom
-- tick: the shard's clock shows this time at least, from now on (N7): what happens later is later than that by it, too.
-- KEYS state   ARGV now_ms revision at_least_ms
-- RETURNS {OK, now_ms}
-- WHY: a store's clock that is set back stands still in each shard where that shard saw it last, and stores of several
-- machines differ; a clear is in one shard, and orders what is in all of them.
--@include shard
now = math.max(now, tonumber(ARGV[3]))
S[CLOCK] = now
close_shard()
return {OK, now}
