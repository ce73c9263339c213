-- home: the checkpoints of a home shard. Every script that writes them begins with it.
-- KEYS counts, marks of deleted counters, state, recounts ...   ARGV now_ms (lib/clock) revision ...
-- RETURNS from the including script: {NO_SHARD}: the namespace was deleted (N14) | {STALE}: the shard follows another revision
-- WHY no other revision: the namespace may have regions in one and none in the other. A caller that does not know them would
-- leave out the time of a clear, or not put its counter behind (N12).
-- A checkpoint (CHECKPOINT): count as high i4 and low I4, exact_to_ms I6, last_write_ms I6, lease: leased_at_ms I6, fencing
-- token I7. One byte more (DELETED) marks a deleted counter: its count is 0, no rollup has seen a later add than
-- last_write_ms, and events up to that time are no longer listed. EPOCH_BYTES more: it was recounted (N12). The number of
-- its epoch I4, and the sum of the adjustments since its last clear i8. In a namespace that has or had regions, CLEARED_BYTES more
-- behind either: the time of its last clear I6. A mark without it is of a counter that expired, or was deleted before.
local call, pack, unpick = redis.call, struct.pack, struct.unpack
do
  local revision = call('GETRANGE', K_HOME_STATE, '0', '5')
  if revision == '' or revision == DELETED_REVISION then return {NO_SHARD} end
  if unpick('>I6', revision) ~= tonumber(ARGV[2]) then return {STALE} end
end

-- Its bytes behind the lease, without the time of the last clear; and that time, or 0.
local function tail_of(checkpoint)
  local bytes = #checkpoint - CHECKPOINT_BYTES
  if bytes ~= 1 + CLEARED_BYTES and bytes ~= EPOCH_BYTES + CLEARED_BYTES then return bytes, 0 end
  return bytes - CLEARED_BYTES, (unpick('>I6', checkpoint, #checkpoint - CLEARED_BYTES + 1))
end

-- The time of the last clear of a checkpoint, or 0.
local function last_clear_of(checkpoint)
  local _, cleared = tail_of(checkpoint)
  return cleared
end

local function is_deleted(checkpoint)
  return tail_of(checkpoint) == 1
end

-- What a compare-and-set compares: the time to which it is exact, 'd' if the counter is deleted, its epoch, and '@' with the
-- time of its last clear.
local function stand_of(checkpoint)
  local _, _, exact_to = unpick(CHECKPOINT, checkpoint)
  local bytes, cleared = tail_of(checkpoint)
  local number = bytes == EPOCH_BYTES and (unpick('>I4', checkpoint, CHECKPOINT_BYTES + 1)) or 0
  return string.format('%.0f', exact_to) .. (bytes == 1 and 'd' or '')
    .. (number > 0 and string.format('.%.0f', number) or '') .. (cleared > 0 and string.format('@%.0f', cleared) or '')
end
