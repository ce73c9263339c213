#!lua flags=allow-oom
-- due: the counters whose rollup is due, the longest waiting first; each is held: it falls due again after hold_ms (N9).
-- KEYS state pending dirty   ARGV now_ms revision due_after_ms limit hold_ms
-- RETURNS {OK, now_ms, when the next falls due or 0, how many are dirty, (counter, when it fell due)...}
-- WHY the score of a dirty counter is since when it waits, not when it falls due: when due_after_ms changes, counters that
-- wait already follow.
-- WHY it holds and does not remove: the caller may die before it has made a job. Only a rollup takes a counter out.
--@include shard
local due_after_ms = tonumber(ARGV[3])
local function waits_since(due_ms) return string.format('%.0f', due_ms - due_after_ms) end
local found = call('ZRANGE', K_DIRTY, '-inf', waits_since(now), 'BYSCORE', 'LIMIT', '0', ARGV[4], 'WITHSCORES')
if #found > 0 then
  local hold, hold_to = {}, waits_since(now + tonumber(ARGV[5]))
  for i = 1, #found, 2 do
    hold[i], hold[i + 1] = hold_to, found[i]
  end
  call('ZADD', K_DIRTY, unpack(hold))
end
local first = call('ZRANGE', K_DIRTY, '0', '0', 'WITHSCORES')
local out = {OK, now, first[2] and tonumber(first[2]) + due_after_ms or 0, call('ZCARD', K_DIRTY)}
for i = 1, #found, 2 do
  out[#out + 1] = found[i]
  out[#out + 1] = tonumber(found[i + 1]) + due_after_ms
end
return out
