#!lua flags=allow-oom
-- merge: records of other regions: of each region and counter the latest one stays (N12).
-- KEYS counts deleted state recounts crossings pending dirty behind regions
-- ARGV now_ms, revision (lib/home), number of incarnations, (region, incarnation)..., (counter, region, record (lib/regions))...
-- RETURNS {OK, how many were later than what stood}
-- WHY a comparison: records may come late, twice and in any order, and the same ones stay.
-- WHY the incarnations are separate: every shard has counters of an earlier one, also a shard that gets no record of the later one.
-- WHY also a record that is not later puts its counter behind: the caller may have died before, and repeats its records.
--@include clock
--@include home
--@include regions
local merged, records_at = 0, 4 + 2 * tonumber(ARGV[3])
for i = 4, records_at - 1, 2 do
  if tonumber(ARGV[i + 1]) > tonumber(call('HGET', K_REGIONS, ARGV[i]) or '0') then
    call('HSET', K_REGIONS, ARGV[i], ARGV[i + 1])
  end
end
for i = records_at, #ARGV, 3 do
  local counter, region, record = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local field = region .. '/' .. counter
  local before = call('HGET', K_REGIONS, field)
  if not before or is_later(record, before) then
    call('HSET', K_REGIONS, field, record)
    merged = merged + 1
  end
  local cleared, is_earlier = lacks(call('HGET', K_COUNTS, counter), record)
  if cleared > 0 or is_earlier then call('ZADD', K_BEHIND, 'NX', string.format('%.0f', now), counter) end
end
return {OK, merged}
