-- home: the checkpoints of a home shard. Every script that writes them begins with it.
-- KEYS counts, marks of deleted counters, state, recounts ...
-- RETURNS from the including script: {NO_SHARD}: the namespace was deleted (N14)
-- A checkpoint (CHECKPOINT): count as high i4 and low I4, exact_to_ms I6, last_write_ms I6, lease: leased_at_ms I6, fencing
-- token I7. One byte more (DELETED) marks a deleted counter: its count is 0, no rollup has seen a later add than
-- last_write_ms, and events up to that time are no longer listed. EPOCH_BYTES more: it was recounted (N12). The number of
-- its epoch I4, and the sum of the adjustments since its last clear i8.
local call, pack, unpick = redis.call, struct.pack, struct.unpack
do
  local revision = call('GETRANGE', K_HOME_STATE, '0', '5')
  if revision == '' or revision == DELETED_REVISION then return {NO_SHARD} end
end

local function is_deleted(checkpoint)
  return #checkpoint == CHECKPOINT_BYTES + 1
end

-- What a compare-and-set compares: the time to which it is exact, 'd' if the counter is deleted, and its epoch.
local function stand_of(checkpoint)
  local _, _, exact_to = unpick(CHECKPOINT, checkpoint)
  local is_recounted = #checkpoint == CHECKPOINT_BYTES + EPOCH_BYTES
  local epoch = is_recounted and string.format('.%.0f', (unpick('>I4', checkpoint, CHECKPOINT_BYTES + 1))) or ''
  return string.format('%.0f', exact_to) .. (is_deleted(checkpoint) and 'd' or '') .. epoch
end
