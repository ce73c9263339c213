#!lua flags=allow-oom
-- forget: the marks of these counters go if they were deleted up to a time: retention has dropped their events (N14).
-- KEYS counts deleted state recounts   ARGV deleted_to_ms counter...
-- RETURNS {OK, how many}
-- WHY the caller names them: nothing of them may be pending in any shard. A rollup without the mark would count it.
--@include home
local counters, checkpoints, gone = {}, call('HMGET', K_COUNTS, unpack(ARGV, 2)), {}
local deleted = call('ZMSCORE', K_DELETED, unpack(ARGV, 2))
for i = 1, #deleted do
  -- It may have been deleted once more meanwhile.
  if deleted[i] and tonumber(deleted[i]) <= tonumber(ARGV[1]) then
    counters[#counters + 1] = ARGV[i + 1]
    -- A counter that was written since has a checkpoint again.
    if checkpoints[i] and is_deleted(checkpoints[i]) then gone[#gone + 1] = ARGV[i + 1] end
  end
end
if #gone > 0 then call('HDEL', K_COUNTS, unpack(gone)) end
if #counters > 0 then call('ZREM', K_DELETED, unpack(counters)) end
return {OK, #counters}
