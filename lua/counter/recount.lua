#!lua
-- recount: a counter begins another epoch: its count is replaced, and the recount is recorded (N12).
-- KEYS counts deleted state recounts crossings pending [behind (lib/regions)]
-- ARGV now_ms, revision (lib/home), counter, what stands (lib/home), checkpoint, the counter's recounts, crossings (lib/crossings)
-- '' for the recounts: they stay as they are. The counter follows a clear of another region
-- RETURNS {OK} | {LOST}: a rollup, a recount or a deletion has written the checkpoint since the caller read it
-- WHY the recounts come whole: no other recount has written them since, or the epoch is another one.
--@include home
--@include crossings
local counter, recounts, crossings = ARGV[3], ARGV[6], ARGV[7]
local before = call('HGET', K_COUNTS, counter)
if not before or stand_of(before) ~= ARGV[4] then return {LOST} end
call('HSET', K_COUNTS, counter, ARGV[5])
if recounts ~= '' then call('HSET', K_RECOUNTS, counter, recounts) end
if crossings ~= '' then append_crossings(counter, crossings) end
if K_BEHIND then call('ZADD', K_BEHIND, '0', counter) end
return {OK}
