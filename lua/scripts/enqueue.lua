#!lua
-- enqueue: accept messages; what is known by its id answers its first result, or coalesces (Q1, Q3, Q10, Q12).
-- ARGV head, kinds (a byte an item: 1 coalesce + 2 has invisibility), then id, content of each item;
--      content is fixed .. payload, see record.
-- RETURNS {OK, outcome(1) enqueued_at(6) of each item}
-- WHY no allow-oom: a full store refuses the whole call before its first write.
--@include shard
--@include record
--@include event
--@include exclusive
--@include index
--@include move

local kinds = ARGV[5]
local items = #kinds
if items == 0 then return {OK, ''} end
local ids, results = {}, {}
for i = 1, items do ids[i] = ARGV[4 + 2 * i] end
local known = call('HMGET', K_BODY, unpack(ids))

local ZERO = '0' -- a score as text: a Lua number would be printed anew for every member

-- Fresh messages gather here and are written with one call per structure.
local bodies, ready, added, seen_ids = {}, {}, 0, {}
local keys, keys_changed, ready_removed, backlog = {}, {}, {}, {}
if exclusive then
  local values, seen = {}, {}
  for i = 1, items do
    local value = value_of(ARGV[5 + 2 * i])
    if not seen[value] then seen[value], values[#values + 1] = true, value end
  end
  local present, members = {}, {}
  for i, raw in ipairs(call('HMGET', K_KEYS, unpack(values))) do
    if raw then
      local n = #present + 1
      present[n], members[n] = {waiting = unpick('>I4', raw)}, sub(raw, 5)
      present[n].rest, keys[values[i]] = members[n], present[n]
    end
  end
  if #members > 0 then
    for i, score in ipairs(call('ZMSCORE', K_READY, unpack(members))) do
      present[i].kind = score and FREE or LOCKED
    end
  end
end

local function place(value, member)
  local key = keys[value]
  if not key then
    key = {kind = FREE, waiting = 0, rest = member}
    keys[value], ready[member] = key, true
    became_ready = became_ready + 1
  else
    if key.kind == FREE then became_ready = became_ready + 1 end
    if key.kind == FREE and before(member, key.rest) then
      if ready[key.rest] then ready[key.rest] = nil else ready_removed[#ready_removed + 1] = key.rest end
      ready[member] = true
      member, key.rest = key.rest, member
    end
    backlog[#backlog + 1] = ZERO
    backlog[#backlog + 1] = backlog_prefix(value) .. member
    key.waiting = key.waiting + 1
  end
  keys_changed[value] = key
end

local function flush()
  if #bodies == 0 then return end
  call('HSET', K_BODY, unpack(bodies))
  if exclusive then
    local adds, sets = {}, {}
    for member in pairs(ready) do adds[#adds + 1] = ZERO; adds[#adds + 1] = member end
    for value, key in pairs(keys_changed) do
      sets[#sets + 1] = value
      sets[#sets + 1] = pack('>I4', key.waiting) .. key.rest
    end
    if #ready_removed > 0 then call('ZREM', K_READY, unpack(ready_removed)) end
    if #adds > 0 then call('ZADD', K_READY, unpack(adds)) end
    if #backlog > 0 then call('ZADD', K_BACKLOG, unpack(backlog)) end
    if #sets > 0 then call('HSET', K_KEYS, unpack(sets)) end
  elseif #ready > 0 then
    call('ZADD', K_READY, unpack(ready))
  end
  bodies, ready, keys_changed, ready_removed, backlog = {}, {}, {}, {}, {}
end

-- On request history keeps the begin of the payload.
local function with_payload(front)
  return sub(front, 1, 2) .. char(byte(front, 3) + WITH_PAYLOAD) .. sub(front, 4)
end

local function payload_of(content, fixed)
  return pack('>I2', math.min(#content - #fixed, payload_kept)) .. sub(content, #fixed + 1, #fixed + payload_kept)
end

local now6 = pack('>I6', now)
local NO_SEQUENCE = string.rep('\0', 7)
local ACCEPTED = event_front(GONE, PENDING, BY_ENQUEUE, 1, '')
local live = S[COUNT + INVISIBLE] + S[COUNT + PENDING] + S[COUNT + RUNNING]

local outbox_full = outbox_refuse > 0 and S[ADDED] - S[ACKED] >= outbox_refuse

-- Why a message that is not there yet is not taken.
local function no_room()
  if max_depth > 0 and live >= max_depth then return QUEUE_FULL end
  if outbox_full then return OUTBOX_FULL end
end

local function add_fresh(id, content, kind)
  local refused = no_room()
  if refused then return refused, 0 end
  live = live + 1
  S[SEQ] = S[SEQ] + 1
  local seq7 = pack('>I7', S[SEQ])
  local fixed = sub(content, 1, 10 + byte(content, 9) * 256 + byte(content, 10))
  local body = seq7 .. now6 .. content
  if kind >= 2 then
    flush()
    call('HSET', K_BODY, id, body)
    local m = decode_body(id, body)
    local _, invisibility_ms = options_of(fixed)
    m.from, m.version, m.due = GONE, 0, now + (invisibility_ms or default_invisibility_ms)
    enter(m, INVISIBLE, BY_ENQUEUE, '')
    if payload_kept > 0 then
      local n = #events
      events[n - PIECES + 1], events[n] = with_payload(events[n - PIECES + 1]), events[n] .. payload_of(content, fixed)
    end
    return OK, now
  end
  bodies[#bodies + 1] = id
  bodies[#bodies + 1] = body
  local member = sub(content, 1, 8) .. seq7 .. id
  if exclusive then place(value_of(fixed), member)
  else
    ready[#ready + 1] = ZERO
    ready[#ready + 1] = member
  end
  added = added + 1
  local front, record = ACCEPTED, '\0' .. seq7 .. fixed
  if payload_kept > 0 then front, record = with_payload(front), record .. payload_of(content, fixed) end
  add_event(front, id, '', record)
  if #indexes > 0 then index_move(id, fixed, GONE, PENDING, nil, member) end
  return OK, now
end

-- A live message stands for the new one. It acts on its own: what gathered is written first, and the key it
-- moved in is read back.
local function coalesce(m, content)
  local value = exclusive and value_of(content)
  if exclusive and value ~= value_of(m.fixed) then return ID_CONFLICT, 0 end
  local urgent = before(sub(content, 1, 8) .. NO_SEQUENCE, sub(m.fixed, 1, 8) .. NO_SEQUENCE)
  local mark = m.state == RUNNING and m.flags % 2 == 0
  if urgent or mark then
    leave(m, m.state)
    if urgent then m.fixed = sub(content, 1, 8) .. sub(m.fixed, 9) end
    if mark then m.flags = m.flags + MARKED end
    enter(m, m.state, BY_COALESCE, '')
    if exclusive then
      local kind, waiting, rest = get_key(value)
      keys[value] = kind and {kind = kind, waiting = waiting, rest = rest}
    end
  end
  return OK, m.enqueued
end

for i = 1, items do
  local id, content, kind = ids[i], ARGV[5 + 2 * i], byte(kinds, i)
  local code, at
  if not known[i] and not seen_ids[id] then
    code, at = add_fresh(id, content, kind)
    if code == OK then seen_ids[id] = true end
  else
    flush()
    local m = load_message(id)
    if kind % 2 == 0 then
      code, at = OK, m.enqueued
      if sub(call('HGET', K_BODY, id), 14) ~= content then code, at = ID_CONFLICT, 0 end
    elseif m.state <= RUNNING then
      code, at = coalesce(m, content)
    elseif no_room() then
      code, at = no_room(), 0 -- before the old one is gone: a refused item changes nothing
    else
      collect(m)
      code, at = add_fresh(id, content, kind)
    end
  end
  results[i] = char(code) .. pack('>I6', at)
end
flush()
if not exclusive then became_ready = became_ready + added end
S[COUNT + PENDING] = S[COUNT + PENDING] + added
write_events()
close_shard()
return {OK, table.concat(results)}
