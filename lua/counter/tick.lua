#!lua flags=allow-oom
-- tick: the shard never counts an event that happens from now on before now, also after the store's clock is set back (N7).
-- KEYS state   ARGV now_ms revision
-- RETURNS {OK, the time of an event that happens now: later than now_ms if a fence is ahead of it, now_ms}
-- WHY: a clear is in one shard and orders the events of all shards. So its caller waits until the time of each has
-- passed what the clear follows, and afterwards the clear itself. No clock is moved ahead (docs/decisions/0027).
--@include shard
if now > S[SHOWN] then S[SHOWN] = now end
close_shard()
return {OK, stamp, now}
