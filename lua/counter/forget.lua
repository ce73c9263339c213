#!lua flags=allow-oom
-- forget: the marks of counters that were deleted up to a time go: retention has dropped their events (N14).
-- KEYS counts deleted state   ARGV deleted_to_ms limit
-- RETURNS {OK, how many}
--@include home
local found = call('ZRANGE', K_DELETED, '-inf', ARGV[1], 'BYSCORE', 'LIMIT', '0', ARGV[2])
if #found == 0 then return {OK, 0} end
local checkpoints, gone = call('HMGET', K_COUNTS, unpack(found)), {}
for i = 1, #found do
  -- A counter that was written since has a checkpoint again.
  if checkpoints[i] and is_deleted(checkpoints[i]) then gone[#gone + 1] = found[i] end
end
if #gone > 0 then call('HDEL', K_COUNTS, unpack(gone)) end
call('ZREM', K_DELETED, unpack(found))
return {OK, #found}
