-- enqueue: put messages into the floor's queue, one after the other.
-- KEYS ready events   ARGV message_prefix (id priority payload)...
for i = 2, #ARGV, 3 do
  local id, priority, payload = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  redis.call('HSET', ARGV[1] .. id, 'payload', payload, 'state', 'pending')
  redis.call('ZADD', KEYS[1], priority, id)
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', 100000, '*', 'id', id, 'to', 'pending')
end
