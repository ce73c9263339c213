#!lua flags=no-writes
-- list_messages: a page of the messages of one state, in the order of the structure that holds them (Q7).
-- KEYS all of the shard   ARGV head, state, cursor ('': the first page), limit, whether `done` may have errored messages
--      (version 0.1 had put them there)
-- RETURNS {OK, next cursor ('': the last page), then id, head, body, result of each message}
-- A cursor is, for pending: r or b, then the last member; for invisible, running and errored: score(6) member of the
-- last; for the other terminal states, and for errored messages in `done`: the position in it, absolute, as digits.
--@include shard
--@include record

local state, cursor, limit = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local LIST_BYTES_MAX = 3 * 1024 * 1024
local SETS = {[INVISIBLE] = K_INVISIBLE, [RUNNING] = K_RUNNING, [ERRORED] = K_ERRORED}
local ids, cursors, next_cursor = {}, {}, ''

local function add(id, at)
  ids[#ids + 1], cursors[#ids + 1] = id, at
end

if state == PENDING then
  if cursor == '' or sub(cursor, 1, 1) == 'r' then
    local from = cursor == '' and '-' or '(' .. sub(cursor, 2)
    for _, member in ipairs(call('ZRANGEBYLEX', K_READY, from, '+', 'LIMIT', 0, limit)) do
      add(sub(member, 16), 'r' .. member)
    end
    if #ids < limit and exclusive then cursor = 'b' end
  end
  if sub(cursor, 1, 1) == 'b' then
    local from = cursor == 'b' and '-' or '(' .. sub(cursor, 2)
    for _, member in ipairs(call('ZRANGEBYLEX', K_BACKLOG, from, '+', 'LIMIT', 0, limit - #ids)) do
      add(sub(member, 17 + byte(member)), 'b' .. member)
    end
  end
elseif SETS[state] and not (state == ERRORED and string.find(cursor, '^%d+$')) then
  local key, from = SETS[state], 0
  if cursor ~= '' then
    local score = unpick('>I6', cursor)
    if tonumber(call('ZSCORE', key, sub(cursor, 7)) or -1) == score then from = call('ZRANK', key, sub(cursor, 7)) + 1
    else from = call('ZCOUNT', key, '-inf', '(' .. score) end
  end
  local found = call('ZRANGE', key, from, from + limit - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    add(state == ERRORED and sub(found[i], 8) or found[i], pack('>I6', tonumber(found[i + 1])) .. found[i])
  end
  if state == ERRORED and #ids < limit and ARGV[8] == '1' then next_cursor = '0' end
else
  -- The list holds every terminal state, and stale entries: read a bounded number, even if the page stays short.
  local from = math.max(cursor == '' and 0 or tonumber(cursor) - S[POPPED], 0)
  local entries = call('LRANGE', K_DONE, from, from + 999)
  for i, entry in ipairs(entries) do
    local id = sub(entry, DONE_ID)
    local head = call('HGET', K_HEAD, id)
    if head and byte(head) == state and done_entry(decode_head(id, head)) == entry then
      add(id, string.format('%.0f', from + i + S[POPPED]))
      if #ids == limit then break end
    end
  end
  if #ids < limit and #entries == 1000 then next_cursor = string.format('%.0f', from + 1000 + S[POPPED]) end
end

if #ids == limit then next_cursor = cursors[#ids] end
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
