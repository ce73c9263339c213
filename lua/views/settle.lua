#!lua flags=allow-oom
-- settle: drops a record of deltas, whose adds all have a definite answer; those that came too late become the late record (V3).
-- KEYS log state deltas late
-- ARGV now_ms (lib/clock), epoch, is_late (1: the record is the late one), from, to, keep_from (an id of the same stream),
--      again (the new late record; '': none)
-- RETURNS {OK} | {FENCED}: another process owns the partition
-- WHY the new record counts once: its stream and id are another token, and the adds of the old one are certainly not counted.
-- WHY it does not go to the end of the deltas: behind a long backlog it would be too late again, each time.
--@include clock
local field, stream = 'settled', K_DELTAS
if ARGV[3] == '1' then field, stream = 'late_settled', K_LATE end
local epoch, settled = unpack(redis.call('HMGET', K_STATE, 'epoch', field))
if epoch ~= ARGV[2] then return {FENCED} end
if settled == ARGV[5] then return {OK} end
if (settled or '0-0') ~= ARGV[4] then return {FENCED} end
redis.call('HSET', K_STATE, field, ARGV[5])
if ARGV[7] ~= '' then redis.call('XADD', K_LATE, '*', 'd', ARGV[7]) end
redis.call('XTRIM', stream, 'MINID', ARGV[6])
return {OK}
