-- page: the ids of the messages of one state, in the order of the structure that holds them, from a cursor.
-- A cursor is '' for the first page; for pending: r (in ready) or b (in backlog), then the last member; for invisible,
-- running and errored: score(6) member of the last; for the other terminal states, and for errored messages in `done`: the
-- position in it, absolute, as digits.
local SETS = {[INVISIBLE] = K_INVISIBLE, [RUNNING] = K_RUNNING, [ERRORED] = K_ERRORED}
local ENTRIES_MAX = 1000 -- of `done` that one page reads: it holds every terminal state, and stale entries
-- Of the page: the ids, and the cursor behind each of them.
local ids, cursors = {}, {}

local function add(id, at)
  ids[#ids + 1], cursors[#ids + 1] = id, at
end

-- Not Lua's <, which follows the locale.
local function is_after(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = byte(a, i), byte(b, i)
    if x ~= y then return x > y end
  end
  return #a > #b
end

-- RETURNS the rank of the first entry behind the cursor. The entry of the cursor itself may be gone: then by halving the
-- entries of its score, which are in byte order.
local function rank_behind(key, cursor)
  local score, member = (unpick('>I6', cursor)), sub(cursor, 7)
  if tonumber(call('ZSCORE', key, member) or -1) == score then return call('ZRANK', key, member) + 1 end
  local low, high = call('ZCOUNT', key, '-inf', '(' .. score), call('ZCOUNT', key, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_after(call('ZRANGE', key, middle, middle)[1], member) then high = middle else low = middle + 1 end
  end
  return low
end

local function page_of_ready(last, limit)
  for _, member in ipairs(call('ZRANGEBYLEX', K_READY, last == '' and '-' or '(' .. last, '+', 'LIMIT', 0, limit)) do
    add(sub(member, 16), 'r' .. member)
  end
end

local function page_of_backlog(last, limit)
  for _, entry in ipairs(call('ZRANGEBYLEX', K_BACKLOG, last == '' and '-' or '(' .. last, '+', 'LIMIT', 0, limit)) do
    add(sub(entry, 17 + byte(entry)), 'b' .. entry)
  end
end

-- `in_done`: `done` may have errored messages (version 0.1 had put them there).
-- RETURNS the cursor of the next page; '': this is the last one. Not for pending messages.
local function page_of_others(state, cursor, limit, in_done)
  if SETS[state] and not (state == ERRORED and string.find(cursor, '^%d+$')) then
    local from = cursor == '' and 0 or rank_behind(SETS[state], cursor)
    local found = call('ZRANGE', SETS[state], from, from + limit - 1, 'WITHSCORES')
    for i = 1, #found, 2 do
      add(state == ERRORED and sub(found[i], 8) or found[i], pack('>I6', tonumber(found[i + 1])) .. found[i])
    end
    if #ids == limit then return cursors[limit] end
    return state == ERRORED and in_done and '0' or ''
  end
  local from = math.max(cursor == '' and 0 or tonumber(cursor) - S[POPPED], 0)
  local entries = call('LRANGE', K_DONE, from, from + ENTRIES_MAX - 1)
  for i, entry in ipairs(entries) do
    local id = sub(entry, DONE_ID)
    local head = call('HGET', K_HEAD, id)
    if head and byte(head) == state and done_entry(decode_head(id, head)) == entry then
      add(id, string.format('%.0f', from + i + S[POPPED]))
      if #ids == limit then return cursors[limit] end
    end
  end
  return #entries == ENTRIES_MAX and string.format('%.0f', from + ENTRIES_MAX + S[POPPED]) or ''
end
