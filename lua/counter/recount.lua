#!lua
-- recount: a counter begins another epoch: its count is replaced, and the recount is recorded (N12).
-- KEYS counts deleted state recounts crossings
-- ARGV counter, what stands (lib/home), checkpoint, the counter's recounts, crossings (lib/crossings)
-- RETURNS {OK} | {LOST}: a rollup, a recount or a deletion has written the checkpoint since the caller read it
-- WHY the recounts come whole: no other recount has written them since, or the epoch is another one.
--@include home
--@include crossings
local before = call('HGET', K_COUNTS, ARGV[1])
if not before or stand_of(before) ~= ARGV[2] then return {LOST} end
call('HSET', K_COUNTS, ARGV[1], ARGV[3])
call('HSET', K_RECOUNTS, ARGV[1], ARGV[4])
if ARGV[5] ~= '' then append_crossings(ARGV[1], ARGV[5]) end
return {OK}
