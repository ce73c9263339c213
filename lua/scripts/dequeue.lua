#!lua flags=allow-oom
-- dequeue: lease the most urgent runnable messages, to several requests in one call (Q4, Q8, Q10, Q11).
-- ARGV head, wait (1: the server holds requests that get nothing), number of requests, then of each:
--      worker, limit, lease_ms (0: the message's or the queue's), request_id, number of filters,
--      and each filter: position of its index (1 byte), tuple.
-- RETURNS {OK, now, ready, next_due (0: none), then of each request: number of leases, 1 where a bound was met
--      before the limit, and id, head, body of each lease} | {AGAIN}: bounded work was done, more is due
--@include shard
--@include record
--@include event
--@include exclusive
--@include index
--@include move
--@include due
--@include requests

local REPLY_BYTES_MAX, CHUNK, PARK_MAX = 4 * 1024 * 1024, 128, 256

if move_due() then
  write_events()
  close_shard()
  return {AGAIN}
end

local requests, filtered = {}, false
do
  local at = 7
  for i = 1, tonumber(ARGV[6]) do
    local r = {worker = ARGV[at], limit = tonumber(ARGV[at + 1]), lease_ms = tonumber(ARGV[at + 2]),
      request_id = ARGV[at + 3], filters = {}, leases = {}, found = 0, until_ms = 0}
    local filters = tonumber(ARGV[at + 4])
    at = at + 5
    for f = 1, filters do
      local raw = ARGV[at]
      r.filters[f] = {index = indexes[byte(raw)], tuple = sub(raw, 2)}
      at, filtered = at + 1, true
    end
    requests[i] = r
  end
end

if filtered and S[PARKED] > 0 then
  local rest = first(K_PARKED, 'U')
  if rest then
    restore_parked(sub(rest, 3))
    write_events()
    close_shard()
    return {AGAIN}
  end
end

local reply_bytes = 0
local function give(r, id, head, body, due)
  local n = #r.leases
  r.leases[n + 1], r.leases[n + 2], r.leases[n + 3] = id, head, body
  r.found = r.found + 1
  reply_bytes = reply_bytes + #body
  if due > r.until_ms then r.until_ms = due end
end

-- A request id that was answered before: those of its leases that live.
local function replay(r, raw)
  local at = 7
  while at <= #raw do
    local fence, id
    fence, id, at = unpick('>I7Bc0', raw, at)
    local head = call('HGET', K_HEAD, id)
    local m = head and decode_head(id, head)
    if m and m.state == RUNNING and m.fence == fence and now < m.due then
      give(r, id, head, call('HGET', K_BODY, id), 0)
    end
  end
  r.replayed = r.found > 0
end

do
  local ids, latest = {}, {}
  for _, r in ipairs(requests) do
    if r.request_id ~= '' then
      ids[#ids + 1] = r.request_id
      r.twin, latest[r.request_id] = latest[r.request_id], r
    end
  end
  if #ids > 0 then
    local answered, nth = call('HMGET', K_REQUESTS, unpack(ids)), 0
    for _, r in ipairs(requests) do
      if r.request_id ~= '' then
        nth = nth + 1
        if answered[nth] then replay(r, answered[nth]) end
      end
    end
    forget_requests(2 * #ids)
  end
end

-- The hot path: the first messages of ready, written with one call per structure.
local RUN_HEAD = char(RUNNING) .. pack('>I4I6', 2, now)
local NEVER_ENDED = string.rep('\0', 7 + 1 + 4 + 1) .. pack('>I2', 1)
local EVENT_HEAD = char(PENDING, RUNNING, BY_DEQUEUE) .. pack('>I4', 2)
local ONE_ATTEMPT = pack('>I2', 1)

local function lease_from_ready(group, wanted)
  local members = call('ZRANGE', K_READY, 0, math.min(wanted, CHUNK) - 1)
  if #members == 0 then return 0 end
  local ids = {}
  for i, member in ipairs(members) do ids[i] = sub(member, 16) end
  local bodies, heads = call('HMGET', K_BODY, unpack(ids)), call('HMGET', K_HEAD, unpack(ids))
  call('ZREMRANGEBYRANK', K_READY, 0, #members - 1)
  local new_heads, running, values = {}, {}, {}
  local g, r = 0, nil
  local worker, due, due_text, due6, lease_tail
  for i, member in ipairs(members) do
    while not r or r.found == r.limit do
      g = g + 1
      r, due = group[g], nil
      worker = char(#r.worker) .. r.worker
    end
    local id, body, head = ids[i], bodies[i], heads[i]
    local fixed = head and decode_head(id, head).fixed or fixed_of_body(body)
    S[SEQ] = S[SEQ] + 1
    local lease_ms, own_lease_ms = r.lease_ms, nil
    if lease_ms == 0 then
      if #fixed > 10 then own_lease_ms = options_of(fixed) end
      lease_ms = own_lease_ms or default_lease_ms
    end
    if not due or due ~= now + lease_ms then
      due = now + lease_ms
      due_text = string.format('%.0f', due)
      due6, lease_tail = pack('>I6', due), pack('>I4', lease_ms) .. NOT_EXTENDED
      note_due(due)
    end
    if head then
      local m = decode_head(id, head)
      m.state, m.since, m.due, m.version, m.attempts = RUNNING, now, due, m.version + 1, m.attempts + 1
      m.fence, m.lease_ms, m.extended, m.worker = S[SEQ], lease_ms, NOT_EXTENDED, r.worker
      if m.flags >= REDRIVEN then m.flags = m.flags - REDRIVEN end
      head = encode_head(m)
      add_event(PENDING, RUNNING, BY_DEQUEUE, m, '')
    else
      -- The same bytes as encode_head and add_event would make for a first lease, without taking them apart.
      local seq_enqueued, fence7 = sub(body, 1, 13), pack('>I7', S[SEQ])
      head = RUN_HEAD .. due6 .. NEVER_ENDED .. fence7 .. lease_tail .. seq_enqueued .. worker .. '\0' .. fixed
      events[#events + 1] = EVENT_HEAD .. sub(body, 1, 7) .. fence7 .. ONE_ATTEMPT .. due6 .. char(#id) .. id
        .. worker .. '\0' .. fixed
    end
    new_heads[2 * i - 1], new_heads[2 * i] = id, head
    running[2 * i - 1], running[2 * i] = due_text, id
    if exclusive then values[i] = value_of(fixed) end
    if #indexes > 0 then index_move(id, fixed, PENDING, RUNNING, member) end
    give(r, id, head, body, due)
  end
  if exclusive then
    local keys = call('HMGET', K_KEYS, unpack(values))
    local sets = {}
    for i, raw in ipairs(keys) do
      sets[2 * i - 1], sets[2 * i] = values[i], char(LOCKED) .. sub(raw, 2, 5) .. ids[i]
    end
    call('HSET', K_KEYS, unpack(sets))
  end
  call('HSET', K_HEAD, unpack(new_heads))
  call('ZADD', K_RUNNING, unpack(running))
  S[COUNT + PENDING], S[COUNT + RUNNING] = S[COUNT + PENDING] - #members, S[COUNT + RUNNING] + #members
  return #members
end

-- The most urgent message under one filter whose value is free. Locked heads on the way are parked, a bounded
-- number of them; second result: the bound was met.
local parked = 0
local function next_runnable(filter)
  local prefix = 'R' .. filter.tuple
  while true do
    local entry = first(filter.index.order, prefix)
    if not entry then return nil end
    local member = sub(entry, #prefix + 1)
    local m = load_message(sub(member, 16))
    if not exclusive then return m, member end
    local value = value_of(m.fixed)
    if get_key(value) ~= LOCKED then return m, member end
    if parked == PARK_MAX then return nil, nil, true end
    parked = parked + 1
    call('ZREM', filter.index.order, entry)
    S[PARKED] = S[PARKED]
      + call('ZADD', K_PARKED, 0, 'P' .. char(#value) .. value .. filter.index.slot .. filter.tuple)
  end
end

local function lease_filtered(r)
  while r.found < r.limit do
    local best, best_member
    for _, filter in ipairs(r.filters) do
      local m, member, bound = next_runnable(filter)
      if bound then
        r.bound = true
        return
      end
      if m and (not best or before(member, best_member)) then best, best_member = m, member end
    end
    if not best then return end
    local own_lease_ms = options_of(best.fixed)
    leave(best, RUNNING)
    S[SEQ] = S[SEQ] + 1
    best.lease_ms = r.lease_ms > 0 and r.lease_ms or own_lease_ms or default_lease_ms
    best.due, best.attempts, best.fence = now + best.lease_ms, best.attempts + 1, S[SEQ]
    best.extended, best.worker, best.flags = NOT_EXTENDED, r.worker, best.flags % REDRIVEN
    enter(best, RUNNING, BY_DEQUEUE, '')
    give(r, best.id, encode_head(best), call('HGET', K_BODY, best.id), best.due)
    if reply_bytes > REPLY_BYTES_MAX then
      r.bound = true
      return
    end
  end
end

-- Requests act in order; neighbours without filters share the hot path. One whose id came earlier in this very call
-- (`twin`: a retry that was combined with its original) answers the same.
do
  local i = 1
  while i <= #requests do
    local r = requests[i]
    if r.replayed then
      i = i + 1
    elseif r.twin and r.twin.found > 0 then
      r.leases, r.found, r.replayed = r.twin.leases, r.twin.found, true
      i = i + 1
    elseif #r.filters > 0 then
      lease_filtered(r)
      i = i + 1
    else
      local group, wanted = {}, 0
      repeat
        group[#group + 1], wanted = r, wanted + r.limit
        i = i + 1
        r = requests[i]
      until not r or r.replayed or r.twin or #r.filters > 0
      while wanted > 0 do
        if reply_bytes > REPLY_BYTES_MAX then
          for _, short in ipairs(group) do short.bound = short.found < short.limit end
          break
        end
        local got = lease_from_ready(group, wanted)
        if got == 0 then break end
        wanted = wanted - got
      end
    end
  end
end

local hungry = false
local records, record_due = {}, {}
for _, r in ipairs(requests) do
  if r.found == 0 then hungry = true end
  if r.found > 0 and r.request_id ~= '' and not r.replayed then
    local record = {pack('>I6', r.until_ms)}
    for i = 1, #r.leases, 3 do
      local id = r.leases[i]
      record[#record + 1] = sub(r.leases[i + 1], 33, 39) .. char(#id) .. id
    end
    records[#records + 1], records[#records + 2] = r.request_id, table.concat(record)
    record_due[#record_due + 1], record_due[#record_due + 2] = r.until_ms, r.request_id
  end
end
if #records > 0 then
  call('HSET', K_REQUESTS, unpack(records))
  call('ZADD', K_REQUEST_DUE, unpack(record_due))
end
if hungry and ARGV[5] == '1' then
  if S[WAIT_UNTIL] <= now or waiter == ARGV[4] then waiter = ARGV[4] else waiter = '*' end
  S[WAIT_UNTIL] = now + WAIT_MARK_MS
end
write_events()
close_shard()

local reply = {OK, now, call('ZCARD', K_READY), next_due()}
for _, r in ipairs(requests) do
  reply[#reply + 1], reply[#reply + 2] = r.found, r.bound and 1 or 0
  for _, part in ipairs(r.leases) do reply[#reply + 1] = part end
end
return reply
