#!lua flags=allow-oom
-- tick: the shard never shows an earlier time than now, also after the store's clock is set back (N7).
-- KEYS state   ARGV now_ms revision
-- RETURNS {OK, now_ms, the store's time in ms: earlier than now_ms if its clock was set back}
-- WHY: a clear is in one shard and orders the events of all shards. So its caller waits until the clock of each has
-- passed what the clear follows, and afterwards the clear itself. No clock is moved ahead (docs/decisions/0027).
--@include shard
close_shard()
return {OK, now, store_now}
