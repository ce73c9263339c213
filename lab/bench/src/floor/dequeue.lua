-- dequeue: lease the most urgent messages to one worker.
-- KEYS ready running events   ARGV message_prefix worker lease_ms limit
-- RETURNS id payload id payload ...
local time = redis.call('TIME')
local expires_at = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[3]
local leased = {}
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, ARGV[4] - 1)) do
  local message = ARGV[1] .. id
  redis.call('ZREM', KEYS[1], id)
  redis.call('ZADD', KEYS[2], expires_at, id)
  redis.call('HSET', message, 'state', 'running', 'owner', ARGV[2])
  redis.call('XADD', KEYS[3], 'MAXLEN', '~', 100000, '*', 'id', id, 'to', 'running', 'worker', ARGV[2])
  leased[#leased + 1] = id
  leased[#leased + 1] = redis.call('HGET', message, 'payload')
end
return leased
