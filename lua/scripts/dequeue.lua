#!lua flags=allow-oom
-- dequeue: lease the most urgent runnable messages, to several requests in one call (Q4, Q8, Q10, Q11).
-- ARGV head, wait (1: the server may hold callers when this has been answered), then each request packed: limit(2), 1 where it
--      goes on from an earlier step of its call(1), payload bytes that it got there(4), lease_ms(4) (0: the message's
--      or the queue's), worker and request_id, each with its length, number of filters(1), and each filter: position
--      of its index(1), length(2) of its tuple, tuple.
-- RETURNS {OK, now, ready, next_due (0: none), then of each request: number of leases, why it ended before its limit
--      (0: nothing is left for it, 1: WORK_BOUND, it may go on, 2: PAYLOAD_BOUND), and id, head, body of each lease}
--      | {AGAIN}: bounded work was done, more is due
--@include shard
--@include record
--@include event
--@include exclusive
--@include index
--@include move
--@include due
--@include requests

local REPLY_BYTES_MAX, CHUNK, PARK_MAX = 4 * 1024 * 1024, 128, 256
local WORK_BOUND, PAYLOAD_BOUND = 1, 2

if move_due() then
  write_events()
  close_shard()
  return {AGAIN}
end

local requests, filtered, NO_FILTERS = {}, false, {}
for i = 6, #ARGV do
  local packed = ARGV[i]
  local limit, goes_on, bytes, lease_ms, worker, request_id, filters, at = unpick('>I2BI4I4Bc0Bc0B', packed)
  local r = {limit = limit, goes_on = goes_on == 1, ended = 0, lease_ms = lease_ms, worker = worker, request_id = request_id, filters = NO_FILTERS,
    found = 0, first = 0, bytes = bytes, until_ms = 0}
  if filters > 0 then
    filtered, r.filters = true, {}
    for f = 1, filters do
      local position, tuple_bytes
      position, tuple_bytes, at = unpick('>BI2', packed, at)
      r.filters[f] = {index = indexes[position], tuple = sub(packed, at, at + tuple_bytes - 1)}
      at = at + tuple_bytes
    end
  end
  requests[i - 5] = r
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

-- id, head, body of every lease; those of one request stand together, from r.first on.
local leases, leases_end, reply_bytes = {}, 0, 0
local function give(r, id, head, body, due, payload_bytes)
  if r.found == 0 then r.first = leases_end + 1 end
  leases[leases_end + 1], leases[leases_end + 2], leases[leases_end + 3] = id, head, body
  leases_end = leases_end + 3
  r.found = r.found + 1
  reply_bytes, r.bytes = reply_bytes + #body, r.bytes + payload_bytes
  if due > r.until_ms then r.until_ms = due end
end

-- A request id that was answered before: those of its leases that live.
local function replay(r, raw)
  local at = 7
  while at <= #raw do
    local fencing_token, id
    fencing_token, id, at = unpick('>I7Bc0', raw, at)
    local head = call('HGET', K_HEAD, id)
    local m = head and decode_head(id, head)
    if m and m.state == RUNNING and m.fencing_token == fencing_token and now < m.due then
      give(r, id, head, call('HGET', K_BODY, id), 0, 0)
    end
  end
  r.replayed = r.found > 0
end

do
  local ids, latest = {}, {}
  for _, r in ipairs(requests) do
    if r.request_id ~= '' and not r.goes_on then
      ids[#ids + 1] = r.request_id
      r.twin, latest[r.request_id] = latest[r.request_id], r
    end
  end
  if #ids > 0 then
    local answered, nth = call('HMGET', K_REQUESTS, unpack(ids)), 0
    for _, r in ipairs(requests) do
      if r.request_id ~= '' and not r.goes_on then
        nth = nth + 1
        if answered[nth] then replay(r, answered[nth]) end
      end
    end
    forget_requests(2 * #ids)
  end
end

-- The hot path, for both types of queue: taken from ready, a head locks its value. The first messages of ready go to the requests from `next_request` to `last_request`, written with one
-- call per structure.
local RUN_HEAD = char(RUNNING) .. pack('>I4I6', 2, now)
local NEVER_ENDED = string.rep('\0', 7 + 1 + 4 + 1) .. pack('>I2', 1)
local FIRST_LEASE = event_front(PENDING, RUNNING, BY_DEQUEUE, 2, '')

local function lease_from_ready(next_request, last_request, wanted)
  local members = call('ZRANGE', K_READY, 0, math.min(wanted, CHUNK) - 1)
  local count = #members
  if count == 0 then return 0 end
  local ids = {}
  for i = 1, count do ids[i] = sub(members[i], 16) end
  local bodies, heads = call('HMGET', K_BODY, unpack(ids)), call('HMGET', K_HEAD, unpack(ids))
  local new_heads, running = {}, {}
  local r, worker, worker_field
  -- What first leases of one length have in common; most messages have the same.
  local shared_ms, due, due_text, head_front, lease_field
  local seq, taken = S[SEQ], 0
  for i = 1, count do
    while not r or r.found == r.limit or r.bytes >= DEQUEUE_PAYLOAD_BYTES do
      if r and r.found < r.limit then r.ended = PAYLOAD_BOUND end
      r = next_request <= last_request and requests[next_request]
      if not r then break end
      next_request = next_request + 1
    end
    if not r then break end
    taken = i
    if r.worker ~= worker then worker, worker_field = r.worker, char(#r.worker) .. r.worker .. '\0' end
    local id, body, head = ids[i], bodies[i], heads[i]
    local fixed = head and sub(head, fixed_at(head)) or fixed_of_body(body)
    seq = seq + 1
    local lease_ms = r.lease_ms
    if lease_ms == 0 then lease_ms = #fixed > 10 and options_of(fixed) or default_lease_ms end
    if lease_ms ~= shared_ms then
      shared_ms, due = lease_ms, now + lease_ms
      due_text, lease_field = string.format('%.0f', due), pack('>I4', lease_ms) .. NOT_EXTENDED
      head_front = RUN_HEAD .. pack('>I6', due) .. NEVER_ENDED
      note_due(due)
    end
    if head then
      local m = decode_head(id, head)
      local left = m.version > 1 and sub(head, 6, 11) or ''
      m.state, m.since, m.due, m.version, m.attempts = RUNNING, now, due, m.version + 1, m.attempts + 1
      m.fencing_token, m.lease_ms, m.extended, m.worker = seq, lease_ms, NOT_EXTENDED, worker
      if m.flags >= REDRIVEN then m.flags = m.flags - REDRIVEN end
      head = encode_head(m)
      add_event(event_front(PENDING, RUNNING, BY_DEQUEUE, m.version, ''), id, left, head)
    else
      -- The same bytes as encode_head would make for a first lease, without taking the record apart.
      head = head_front .. pack('>I7', seq) .. lease_field .. sub(body, 1, 13) .. worker_field .. fixed
      add_event(FIRST_LEASE, id, '', head)
    end
    new_heads[2 * i - 1], new_heads[2 * i] = id, head
    running[2 * i - 1], running[2 * i] = due_text, id
    if #indexes > 0 then index_move(id, fixed, PENDING, RUNNING, members[i]) end
    give(r, id, head, body, due, #body - #fixed - 13)
  end
  if taken == 0 then return 0 end
  call('ZREMRANGEBYRANK', K_READY, 0, taken - 1)
  call('HSET', K_HEAD, unpack(new_heads))
  call('ZADD', K_RUNNING, unpack(running))
  S[SEQ] = seq
  S[COUNT + PENDING], S[COUNT + RUNNING] = S[COUNT + PENDING] - taken, S[COUNT + RUNNING] + taken
  return taken
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
  if reply_bytes > REPLY_BYTES_MAX then
    r.ended = WORK_BOUND
    return
  end
  while r.found < r.limit do
    local best, best_member
    for _, filter in ipairs(r.filters) do
      local m, member, bound = next_runnable(filter)
      if bound then
        r.ended = WORK_BOUND
        return
      end
      if m and (not best or before(member, best_member)) then best, best_member = m, member end
    end
    if not best then return end
    if r.bytes >= DEQUEUE_PAYLOAD_BYTES then
      r.ended = PAYLOAD_BOUND
      return
    end
    local own_lease_ms = options_of(best.fixed)
    leave(best, RUNNING)
    S[SEQ] = S[SEQ] + 1
    best.lease_ms = r.lease_ms > 0 and r.lease_ms or own_lease_ms or default_lease_ms
    best.due, best.attempts, best.fencing_token = now + best.lease_ms, best.attempts + 1, S[SEQ]
    best.extended, best.worker, best.flags = NOT_EXTENDED, r.worker, best.flags % REDRIVEN
    enter(best, RUNNING, BY_DEQUEUE, '')
    local body = call('HGET', K_BODY, best.id)
    give(r, best.id, encode_head(best), body, best.due, #body - #best.fixed - 13)
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
      r.first, r.found, r.replayed = r.twin.first, r.twin.found, true
      i = i + 1
    elseif #r.filters > 0 then
      lease_filtered(r)
      i = i + 1
    else
      local group, wanted = i, 0
      repeat
        wanted = wanted + r.limit
        i = i + 1
        r = requests[i]
      until not r or r.replayed or r.twin or #r.filters > 0
      while wanted > 0 do
        if reply_bytes > REPLY_BYTES_MAX then
          for short = group, i - 1 do
            r = requests[short]
            if r.found < r.limit and r.ended == 0 then r.ended = WORK_BOUND end
          end
          break
        end
        local got = lease_from_ready(group, i - 1, wanted)
        if got == 0 then break end
        wanted = wanted - got
      end
    end
  end
end

local records, record_due = {}, {}
for _, r in ipairs(requests) do
  if r.found > 0 and r.request_id ~= '' and not r.replayed then
    local earlier = r.goes_on and call('HGET', K_REQUESTS, r.request_id)
    if earlier then r.until_ms = math.max(r.until_ms, (unpick('>I6', earlier))) end
    local record = {pack('>I6', r.until_ms), earlier and sub(earlier, 7) or ''}
    for i = r.first, r.first + 3 * r.found - 1, 3 do
      local id = leases[i]
      record[#record + 1] = sub(leases[i + 1], 33, 39) .. char(#id) .. id
    end
    records[#records + 1], records[#records + 2] = r.request_id, table.concat(record)
    record_due[#record_due + 1], record_due[#record_due + 2] = r.until_ms, r.request_id
  end
end
if #records > 0 then
  call('HSET', K_REQUESTS, unpack(records))
  call('ZADD', K_REQUEST_DUE, unpack(record_due))
end
if ARGV[5] == '1' then
  if S[WAIT_UNTIL] <= now or waiter == ARGV[4] then waiter = ARGV[4] else waiter = '*' end
  S[WAIT_UNTIL] = now + WAIT_MARK_MS
end
write_events()
close_shard()

local reply = {OK, now, call('ZCARD', K_READY), next_due()}
local n = 4
for _, r in ipairs(requests) do
  reply[n + 1], reply[n + 2] = r.found, r.ended
  n = n + 2
  for i = r.first, r.first + 3 * r.found - 1 do
    n = n + 1
    reply[n] = leases[i]
  end
end
return reply
