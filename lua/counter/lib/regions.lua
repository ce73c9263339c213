-- regions: what other regions have published of the counters of a home shard (N12). `home` comes before it.
-- KEYS the seventh: behind, a sorted set of the counters that need attention, scored by from when on (Unix ms): their present
-- checkpoint is not published yet, or this region has not caught up with another one. The eighth: regions, a hash of records.
-- A record (REGION_RECORD): incarnation I6, time of the last clear I6, epoch I4, exact_to_ms I6, last_write_ms I6, count as
-- high i4 and low I4. Its field is the region, '/' and the counter. The field of a region alone is its latest incarnation.

-- Whether a record is later than another one of its region and counter.
-- WHY in this order: a clear makes all before it void. The time to which a count is exact only rises between clears, and a
-- recount changes the count at the same time.
local function is_later(record, before)
  local incarnation, cleared, epoch, exact_to = unpick(REGION_RECORD, record)
  local was_incarnation, was_cleared, was_epoch, was_exact_to = unpick(REGION_RECORD, before)
  if incarnation ~= was_incarnation then return incarnation > was_incarnation end
  if cleared ~= was_cleared then return cleared > was_cleared end
  if exact_to ~= was_exact_to then return exact_to > was_exact_to end
  return epoch > was_epoch
end

-- The time of a clear that the own checkpoint does not have yet, or 0; and whether its count is not exact to the record's last
-- event yet.
local function lacks(own, record)
  local _, cleared, _, _, last_write = unpick(REGION_RECORD, record)
  local exact_to, own_cleared = 0, 0
  -- One that cannot be read has nothing, or a record of it would keep those of other counters from being merged.
  if own and #own >= CHECKPOINT_BYTES then
    local _, _, own_exact_to = unpick(CHECKPOINT, own)
    exact_to, own_cleared = own_exact_to, last_clear_of(own)
  end
  return cleared > own_cleared and cleared or 0, exact_to <= last_write
end
