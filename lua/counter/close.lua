#!lua flags=allow-oom
-- close: a counter near the end of its range takes nothing more in that direction, or takes it again (N2).
-- KEYS state pending   ARGV now_ms revision closed (CLOSED_UP + CLOSED_DOWN, 0: neither) counter. RETURNS {OK}
--@include shard
local raw, closed = call('HGET', K_PENDING, ARGV[4]), tonumber(ARGV[3])
local p = read_pending(raw)
p.closed = closed
if closed == 0 and #p.entries == 0 then
  call('HDEL', K_PENDING, ARGV[4])
else
  call('HSET', K_PENDING, ARGV[4], write_pending(p))
end
close_shard()
return {OK}
