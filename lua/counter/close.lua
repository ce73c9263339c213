#!lua flags=allow-oom
-- close: a counter near the end of its range takes no more adds in that direction (N2); called before that count commits.
-- KEYS state pending dirty   ARGV now_ms revision closed_to_ms closed (CLOSED_UP or CLOSED_DOWN) counter
-- RETURNS {OK}
-- WHY it marks the counter dirty: the caller may die, or lose its commit. The next rollup then decides.
--@include shard
--@include pending
local closed_to, closed, counter = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local p = read_pending(whole(counter, call('HGET', K_PENDING, counter)))
if closed_to >= p.closed_to then
  p.closed, p.closed_to = closed, closed_to
  call('HSET', K_PENDING, counter, write_pending(p))
  if p.had_older then call('HDEL', K_PENDING, OLDER_FIELD .. counter) end
  call('ZADD', K_DIRTY, 'NX', string.format('%.0f', now), counter)
end
return {OK}
