#!lua flags=allow-oom
-- lower: checkpoints that are exact to a time that is yet to come become exact to an earlier one; their counts stay (X6).
-- KEYS counts deleted state recounts   ARGV from_ms to_ms counter...
-- RETURNS {OK, how many}
-- WHY without their leases: those of the time ahead would be later than every lease that follows.
-- WHY also the times of deletions: events that follow would not be listed.
local from, to, lowered = tonumber(ARGV[1]), tonumber(ARGV[2]), 0
for i = 3, #ARGV do
  local raw = redis.call('HGET', K_COUNTS, ARGV[i])
  local high, low, exact_to, last_write = 0, 0, 0, 0
  if raw then high, low, exact_to, last_write = struct.unpack(CHECKPOINT, raw) end
  if raw and exact_to == from then
    local checkpoint = struct.pack(CHECKPOINT, high, low, to, math.min(last_write, to), 0, 0)
    -- Behind it is the mark of a deleted counter, or an epoch.
    redis.call('HSET', K_COUNTS, ARGV[i], checkpoint .. string.sub(raw, CHECKPOINT_BYTES + 1))
    redis.call('ZADD', K_DELETED, 'XX', 'LT', ARGV[2], ARGV[i])
    lowered = lowered + 1
  end
end
return {OK, lowered}
