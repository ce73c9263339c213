#!lua
-- create_queue: the queue's configuration and its empty counters, unless they are there (Q1).
-- ARGV now_ms, configuration. RETURNS {OK, configuration, state} as they stand.
-- WHY the sequence starts at the microseconds of the creation: a queue deleted and made anew never gives out a
-- fencing token twice (Q11).
local existing = redis.call('GET', K_STATE)
if not existing then
  local now, micros = tonumber(ARGV[1]), 0
  if now == 0 then
    local time = redis.call('TIME')
    now, micros = time[1] * 1000 + math.floor(time[2] / 1000), time[2] % 1000
  end
  existing = struct.pack('>I4I7I6I6I6I6I6I6I6I6I4I6I6', 1, now * 1000 + micros, 0, 0, 0, 0, 0, 0, 0, FAR, 0, 0, now)
  redis.call('SET', K_STATE, existing)
  redis.call('SET', K_CONFIG, ARGV[2])
end
return {OK, redis.call('GET', K_CONFIG), existing}
