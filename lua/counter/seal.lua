#!lua flags=allow-oom
-- seal: no event before now - lag_ms is appended from now on; returns what is pending (N7).
-- KEYS state pending   ARGV now_ms revision lag_ms counter...
-- RETURNS {OK, sealed_to_ms, pending record without its chunks or ''...}
-- WHY without: the caller reads the record with all of them after the seal. What is sealed changes no more until it is settled.
-- WHY one seal for all counters of a shard: one for each would have to outlive the counter's pending record, or a clock
-- set back would let an event in behind a rollup.
--@include shard
--@include pending
local to = floor((now - tonumber(ARGV[3])) / WINDOW_MS) * WINDOW_MS
if to > S[SEALED_TO] then S[SEALED_TO] = to end
close_shard()
local found = call('HMGET', K_PENDING, unpack(ARGV, 4))
local out = {OK, S[SEALED_TO]}
for i = 1, #found do out[i + 2] = with_older(ARGV[i + 3], found[i]) or '' end
return out
