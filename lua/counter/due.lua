#!lua flags=allow-oom
-- due: the counters whose rollup is due, the longest waiting first; they are not due again for hold_ms (N9).
-- KEYS state pending dirty   ARGV now_ms revision limit hold_ms
-- RETURNS {OK, when the next is due or 0, counter...}
-- WHY held and not removed: whoever asked may die before it has told anybody. Only a rollup takes a counter out.
--@include shard
local out = {OK, 0}
local found = call('ZRANGE', K_DIRTY, '-inf', string.format('%.0f', now), 'BYSCORE', 'LIMIT', '0', ARGV[3])
local hold_to = string.format('%.0f', now + tonumber(ARGV[4]))
for i = 1, #found do
  out[i + 2] = found[i]
  call('ZADD', K_DIRTY, hold_to, found[i])
end
local first = call('ZRANGE', K_DIRTY, '0', '0', 'WITHSCORES')
if first[2] then out[2] = tonumber(first[2]) end
close_shard()
return out
