#!lua flags=no-writes
-- explain: the facts that explain why a message is not running (Q7).
-- KEYS all of the shard   ARGV head, id
-- RETURNS {OK, head or '', body or '', result or '', holder id, holder head, key head id, ahead}
--@include shard
--@include record
--@include exclusive

local id = ARGV[5]
local head, body = call('HGET', K_HEAD, id) or '', call('HGET', K_BODY, id) or ''
local holder, holder_head, key_head, ahead = '', '', '', 0
local m = load_message(id)
if m and m.state == PENDING then
  local member, runnable = member_of(m), true
  if exclusive then
    local kind, _, rest = get_key(value_of(m.fixed))
    runnable = kind == FREE and rest == member
    if kind == LOCKED then
      holder = sub(rest, 16)
      holder_head = call('HGET', K_HEAD, holder)
    elseif not runnable then key_head = sub(rest, 16) end
  end
  if runnable then ahead = call('ZRANK', K_READY, member) end
end
return {OK, head, body, call('HGET', K_RESULTS, id) or '', holder, holder_head, key_head, ahead}
