-- complete: end leases with success; the messages go.
-- KEYS running events   ARGV message_prefix worker id...
-- RETURNS how many were this worker's
local completed = 0
for i = 3, #ARGV do
  local message = ARGV[1] .. ARGV[i]
  if redis.call('HGET', message, 'owner') == ARGV[2] then
    redis.call('ZREM', KEYS[1], ARGV[i])
    redis.call('DEL', message)
    redis.call('XADD', KEYS[2], 'MAXLEN', '~', 100000, '*', 'id', ARGV[i], 'to', 'completed', 'worker', ARGV[2])
    completed = completed + 1
  end
end
return completed
