#!lua flags=allow-oom
-- settle: what a rollup has committed is pending no more; a counter with nothing newer is not dirty (N8, N9).
-- KEYS state pending dirty   ARGV now_ms revision due_after_ms (counter settled_to_ms)...
-- RETURNS {OK}
--@include shard
local due_after_ms = tonumber(ARGV[3])
for i = 4, #ARGV, 2 do
  local counter, settled_to = ARGV[i], tonumber(ARGV[i + 1])
  local p = read_pending(call('HGET', K_PENDING, counter))
  local left = {}
  for j = 1, #p.entries do
    if (p.entries[j][1] + 1) * GRANULE_MS > settled_to then left[#left + 1] = p.entries[j] end
  end
  local settled = #left < #p.entries
  p.entries = left
  if #left == 0 then
    call('ZREM', K_DIRTY, counter)
    if p.closed == 0 then call('HDEL', K_PENDING, counter) end
  else
    call('ZADD', K_DIRTY, string.format('%.0f', due_at(p, due_after_ms)), counter)
  end
  if settled and (#left > 0 or p.closed > 0) then call('HSET', K_PENDING, counter, write_pending(p)) end
end
close_shard()
return {OK}
