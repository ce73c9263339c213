#!lua flags=allow-oom
-- settle: what a rollup has committed is pending no more; a counter with nothing newer is not dirty (N8, N9).
-- KEYS state pending dirty   ARGV now_ms revision due_after_ms (counter settled_to_ms closed)...
-- closed: what the committed count asks for (0, CLOSED_UP or CLOSED_DOWN); it holds unless a later rollup has closed it.
-- RETURNS {OK}
-- WHY closed here and not by a call of its own: opened before it is settled, a counter would take what does not fit on
-- top of a count that has the same deltas already.
--@include shard
local due_after_ms = tonumber(ARGV[3])
for i = 4, #ARGV, 3 do
  local counter, settled_to = ARGV[i], tonumber(ARGV[i + 1])
  local p = read_pending(call('HGET', K_PENDING, counter))
  local left = {}
  for j = 1, #p.entries do
    if (p.entries[j][1] + 1) * GRANULE_MS > settled_to then left[#left + 1] = p.entries[j] end
  end
  p.entries = left
  local is_last_word = settled_to >= p.closed_to
  if is_last_word then p.closed, p.closed_to = tonumber(ARGV[i + 2]), settled_to end
  if #left > 0 then
    call('ZADD', K_DIRTY, string.format('%.0f', due_at(p, due_after_ms)), counter)
  elseif is_last_word then
    call('ZREM', K_DIRTY, counter)
  end
  if #left > 0 or p.closed > 0 then
    call('HSET', K_PENDING, counter, write_pending(p))
  else
    call('HDEL', K_PENDING, counter)
  end
end
close_shard()
return {OK}
