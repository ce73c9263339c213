#!lua flags=no-writes
-- list_messages: a page of the messages of one state, in the order of the structure that holds them (Q7).
-- KEYS all of the shard   ARGV head, state, cursor (lib/page), limit, whether `done` may have errored messages
-- RETURNS {OK, next cursor ('': the last page), then id, head, body, result of each message}
--@include shard
--@include record
--@include page

local state, cursor, limit = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local LIST_BYTES_MAX = 3 * 1024 * 1024
local next_cursor = ''

if state == PENDING then
  if sub(cursor, 1, 1) ~= 'b' then
    page_of_ready(sub(cursor, 2), limit)
    cursor = 'b'
  end
  if #ids < limit and exclusive then page_of_backlog(sub(cursor, 2), limit - #ids) end
  if #ids == limit then next_cursor = cursors[limit] end
else
  next_cursor = page_of_others(state, cursor, limit, ARGV[8] == '1')
end

local reply, bytes = {OK, ''}, 0
for i, id in ipairs(ids) do
  local body, result = call('HGET', K_BODY, id), state == COMPLETED and call('HGET', K_RESULTS, id) or ''
  bytes = bytes + #body + #result
  if bytes > LIST_BYTES_MAX then
    next_cursor = cursors[i - 1]
    break
  end
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = id, call('HGET', K_HEAD, id) or '', body, result
end
reply[2] = next_cursor
return reply
