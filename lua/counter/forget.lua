#!lua flags=allow-oom
-- forget: the marks of these counters go if they were deleted up to a time: retention has dropped their events (N14).
-- KEYS counts deleted state recounts ...   ARGV now_ms, revision (lib/home), deleted_to_ms, counter...
-- RETURNS {OK, how many}
-- WHY a mark with the time of a clear stays: other regions have it, or will. A counter that lives again without it would have to
-- follow its own clear, when the events are gone from which it could.
-- WHY the caller names them: nothing of them may be pending in any shard. A rollup without the mark would count it.
--@include home
local counters, checkpoints, gone = {}, call('HMGET', K_COUNTS, unpack(ARGV, 4)), {}
local deleted = call('ZMSCORE', K_DELETED, unpack(ARGV, 4))
for i = 1, #deleted do
  -- It may have been deleted once more meanwhile.
  if deleted[i] and tonumber(deleted[i]) <= tonumber(ARGV[3]) then
    counters[#counters + 1] = ARGV[i + 3]
    -- A counter that was written since has a checkpoint again.
    if checkpoints[i] and is_deleted(checkpoints[i]) and last_clear_of(checkpoints[i]) == 0 then gone[#gone + 1] = ARGV[i + 3] end
  end
end
if #gone > 0 then call('HDEL', K_COUNTS, unpack(gone)) end
if #counters > 0 then call('ZREM', K_DELETED, unpack(counters)) end
return {OK, #counters}
