#!lua flags=allow-oom
-- close: a counter near the end of its range takes nothing more in that direction (N2), before that count is committed.
-- KEYS state pending dirty   ARGV now_ms revision closed_to_ms closed (CLOSED_UP or CLOSED_DOWN) counter
-- RETURNS {OK}
-- WHY it is dirty then: whoever closes it may die, or lose its commit. The next rollup says what is right.
--@include shard
local closed_to, closed, counter = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local p = read_pending(whole(counter, call('HGET', K_PENDING, counter)))
if closed_to >= p.closed_to then
  p.closed, p.closed_to = closed, closed_to
  call('HSET', K_PENDING, counter, write_pending(p))
  if p.had_older then call('HDEL', K_PENDING, OLDER_FIELD .. counter) end
  call('ZADD', K_DIRTY, 'NX', string.format('%.0f', now), counter)
end
close_shard()
return {OK}
