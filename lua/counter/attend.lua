#!lua flags=allow-oom
-- attend: the present checkpoints of these counters were published; what else do they lack? (N12)
-- KEYS counts deleted state recounts crossings pending dirty behind regions
-- ARGV now_ms, revision (lib/home), again_ms, behind_ms, number of other regions, region..., (counter, what was published)...
-- RETURNS {OK, (the time of a clear of another region that it must follow, or 0; 1: it must be rolled up, or 0)...}
-- What was published: '0': nothing; else what stood (lib/home).
-- A counter whose present checkpoint is not the published one needs attention now. Of the others, one that lacks something needs it
-- again after again_ms; if it only waits for its next rollup, which puts it back by itself, not before its count is behind_ms
-- behind. One that lacks nothing leaves the set.
-- WHY a counter is put back: this caller may have lost its lease before it sent, after another one had published a later
-- checkpoint. Compaction would keep the earlier record, because it came last.
-- WHY the script finds what is lacking: between a read of the caller's and this call a record may be merged.
--@include clock
--@include home
--@include regions
local again, behind_ms, others = now + tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local out, done = {OK}, {}
for i = 6 + others, #ARGV, 2 do
  local counter, fields = ARGV[i], {}
  for j = 1, others do fields[j] = ARGV[5 + j] .. '/' .. counter end
  local own, follow, is_behind = call('HGET', K_COUNTS, counter), 0, false
  for _, record in ipairs(others > 0 and call('HMGET', K_REGIONS, unpack(fields)) or {}) do
    if record then
      local cleared, is_earlier = lacks(own, record)
      follow, is_behind = math.max(follow, cleared), is_behind or is_earlier
    end
  end
  if (own and stand_of(own) or '0') ~= ARGV[i + 1] then
    call('ZADD', K_BEHIND, 'LT', string.format('%.0f', now), counter)
  elseif follow > 0 or is_behind then
    local at = again
    if follow == 0 and own then
      local _, _, exact_to = unpick(CHECKPOINT, own)
      at = math.max(again, exact_to + behind_ms)
    end
    call('ZADD', K_BEHIND, 'XX', string.format('%.0f', at), counter)
  else
    done[#done + 1] = counter
  end
  out[#out + 1] = follow
  out[#out + 1] = is_behind and 1 or 0
end
if #done > 0 then call('ZREM', K_BEHIND, unpack(done)) end
return out
