#!lua flags=allow-oom
-- settle: drops a record of deltas, whose adds all have a definite answer; those that came too late become a new record (V3).
-- KEYS log state deltas   ARGV epoch, from, to, keep_from (deltas), again ('': none)
-- RETURNS {OK} | {FENCED}: another process owns the partition
-- WHY the new record counts once: its id is another token, and the adds of the old one are certainly not counted.
local epoch, settled = unpack(redis.call('HMGET', K_STATE, 'epoch', 'settled'))
if epoch ~= ARGV[1] then return {FENCED} end
if settled == ARGV[3] then return {OK} end
if (settled or '0-0') ~= ARGV[2] then return {FENCED} end
redis.call('HSET', K_STATE, 'settled', ARGV[3])
if ARGV[5] ~= '' then redis.call('XADD', K_DELTAS, '*', 'd', ARGV[5]) end
redis.call('XTRIM', K_DELTAS, 'MINID', ARGV[4])
return {OK}
