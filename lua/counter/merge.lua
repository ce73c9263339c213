#!lua flags=allow-oom
-- merge: records of other regions: of each region and counter the latest one stays (N12).
-- KEYS counts deleted state recounts crossings pending dirty behind regions
-- ARGV now_ms, revision (lib/home), (counter, region, record (lib/regions))...
-- RETURNS {OK, how many were later than what stood}
-- WHY a comparison: records may come late, twice and in any order, and the same ones stay.
-- WHY also a record that is not later puts its counter behind: the caller may have died before, and repeats its records.
--@include clock
--@include home
--@include regions
local merged = 0
for i = 3, #ARGV, 3 do
  local counter, region, record = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local field = region .. '/' .. counter
  local before = call('HGET', K_REGIONS, field)
  if not before or is_later(record, before) then
    call('HSET', K_REGIONS, field, record)
    merged = merged + 1
    local incarnation = unpick(REGION_RECORD, record)
    if incarnation > 0 and incarnation > tonumber(call('HGET', K_REGIONS, region) or '0') then
      call('HSET', K_REGIONS, region, string.format('%.0f', incarnation))
    end
  end
  local cleared, is_earlier = lacks(call('HGET', K_COUNTS, counter), record)
  if cleared > 0 or is_earlier then call('ZADD', K_BEHIND, 'NX', string.format('%.0f', now), counter) end
end
return {OK, merged}
