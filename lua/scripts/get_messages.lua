#!lua flags=no-writes
-- get_messages: reads messages by id (Q7).
-- KEYS all of the shard   ARGV head, then ids. RETURNS {OK, then head or '', body or '', result or '', attempts or '' of each}
--@include shard
local ids = {}
for i = 5, #ARGV do ids[i - 4] = ARGV[i] end
local heads, bodies = call('HMGET', K_HEAD, unpack(ids)), call('HMGET', K_BODY, unpack(ids))
local results, attempts = call('HMGET', K_RESULTS, unpack(ids)), call('HMGET', K_ATTEMPTS, unpack(ids))
local reply = {OK}
for i = 1, #ids do
  local n = 4 * i - 2
  reply[n], reply[n + 1], reply[n + 2], reply[n + 3] = heads[i] or '', bodies[i] or '', results[i] or '', attempts[i] or ''
end
return reply
