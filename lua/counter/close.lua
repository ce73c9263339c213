#!lua flags=allow-oom
-- close: a counter near the end of its range takes no more adds in that direction (N2); called before that count commits.
-- KEYS state pending dirty   ARGV now_ms revision closed_to_ms closed (CLOSED_UP or CLOSED_DOWN) counter
-- RETURNS {OK}
-- WHY it marks the counter dirty: the caller may die, or lose its commit. The next rollup then decides.
--@include shard
local closed_to, closed, counter = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
-- Only the head of the record changes: its windows, however many there are, stay where they are.
local raw = call('HGET', K_PENDING, counter) or pack(PENDING_HEAD, 0, 0, 0, 0, 0)
local last_write, flags, was_closed_to, high, low, windows_at = unpick(PENDING_HEAD, raw)
if closed_to >= was_closed_to then
  flags = flags - flags % HAS_OLDER + closed
  call('HSET', K_PENDING, counter, pack(PENDING_HEAD, last_write, flags, closed_to, high, low) .. sub(raw, windows_at))
  call('ZADD', K_DIRTY, 'NX', string.format('%.0f', now), counter)
end
return {OK}
