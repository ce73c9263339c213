#!lua flags=no-writes
-- ages: when the oldest runnable message was enqueued, and when the oldest lease began (O1).
-- KEYS all of the shard   ARGV head
-- RETURNS {OK, now, when the message was enqueued (0: there is none), when the lease began (0: there is none)}
-- WHY by priority: messages of one priority are in ready in the order of their sequence, so the first one is the oldest.
--@include shard
--@include record
local oldest, oldest_seq
local from = '-'
for _ = 1, AGE_PRIORITIES_MAX do
  local member = call('ZRANGEBYLEX', K_READY, from, '+', 'LIMIT', '0', '1')[1]
  if not member then break end
  local seq = unpick('>I7', member, 9)
  if not oldest or seq < oldest_seq then oldest, oldest_seq = sub(member, 16), seq end
  from = '(' .. sub(member, 1, 8) .. PAST
end

local leased_at = 0
local ids = call('ZRANGE', K_RUNNING, 0, AGE_LEASES_MAX - 1)
if #ids > 0 then
  for _, head in ipairs(call('HMGET', K_HEAD, unpack(ids))) do
    local since = unpick('>I6', head, 6)
    if leased_at == 0 or since < leased_at then leased_at = since end
  end
end
return {OK, now, oldest and load_message(oldest).enqueued or 0, leased_at}
