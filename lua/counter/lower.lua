#!lua
-- lower: checkpoints that are exact to a time that is yet to come become exact to an earlier one; their counts stay (X6).
-- KEYS counts deleted state recounts [crossings pending dirty behind (lib/regions)]
-- ARGV now_ms, revision (lib/home), from_ms, to_ms, counter...
-- RETURNS {OK, how many}
-- WHY without their leases: those of the time ahead would be later than every lease that follows.
-- WHY also the times of deletions: events that follow would not be listed.
-- WHY also the times of clears, and to before to_ms: in other regions, which leave out what is ahead of their clocks, such a
-- clear would remove what is added from to_ms on.
--@include home
local from, to, lowered = tonumber(ARGV[3]), tonumber(ARGV[4]), 0
for i = 5, #ARGV do
  local raw = call('HGET', K_COUNTS, ARGV[i])
  local high, low, exact_to, last_write = 0, 0, 0, 0
  if raw then high, low, exact_to, last_write = unpick(CHECKPOINT, raw) end
  if raw and exact_to == from then
    local checkpoint = pack(CHECKPOINT, high, low, to, math.min(last_write, to), 0, 0)
    -- Behind it is the mark of a deleted counter, or an epoch.
    local bytes, cleared = tail_of(raw)
    checkpoint = checkpoint .. string.sub(raw, CHECKPOINT_BYTES + 1, CHECKPOINT_BYTES + bytes)
    if cleared > 0 then checkpoint = checkpoint .. pack('>I6', math.min(cleared, to - 1)) end
    call('HSET', K_COUNTS, ARGV[i], checkpoint)
    call('ZADD', K_DELETED, 'XX', 'LT', ARGV[4], ARGV[i])
    if K_BEHIND then call('ZADD', K_BEHIND, '0', ARGV[i]) end
    lowered = lowered + 1
  end
end
return {OK, lowered}
