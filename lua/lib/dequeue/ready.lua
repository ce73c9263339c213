-- dequeue/ready: the hot path of dequeue, for requests without filters: leases the first messages of ready. In an
-- exclusive queue ready holds only the heads of free values; a head that leaves ready locks its value.
-- WHY in chunks: one call per structure writes up to CHUNK leases.
local CHUNK = 128
local RUN_HEAD = char(RUNNING) .. pack('>I4I6', 2, now)
local NEVER_ENDED = string.rep('\0', 7 + 1 + 4 + 1) .. pack('>I2', 1)
local FIRST_LEASE = event_front(PENDING, RUNNING, BY_DEQUEUE, 2, '')

-- A message that ran, or was changed, before. RETURNS its new head.
local function lease_again(id, head, worker, lease_ms, due, fencing_token)
  local m = decode_head(id, head)
  local left = m.version > 1 and sub(head, 6, 11) or ''
  m.state, m.since, m.due, m.version, m.attempts = RUNNING, now, due, m.version + 1, m.attempts + 1
  m.fencing_token, m.lease_ms, m.extended, m.worker = fencing_token, lease_ms, NOT_EXTENDED, worker
  if m.flags >= REDRIVEN then m.flags = m.flags - REDRIVEN end
  head = encode_head(m)
  add_event(event_front(PENDING, RUNNING, BY_DEQUEUE, m.version, ''), id, left, head)
  return head
end

-- Leases one chunk to the requests from `at` to `last`, in order. RETURNS how many messages were leased.
local function lease_chunk(requests, at, last, wanted)
  local members = call('ZRANGE', K_READY, 0, math.min(wanted, CHUNK) - 1)
  local count = #members
  if count == 0 then return 0 end
  local ids = {}
  for i = 1, count do ids[i] = sub(members[i], 16) end
  local bodies, heads = call('HMGET', K_BODY, unpack(ids)), call('HMGET', K_HEAD, unpack(ids))
  local new_heads, running = {}, {}
  local r, worker, worker_field
  -- The fields that first leases of one length share: most messages have the same length.
  local shared_ms, due, due_text, head_front, lease_field
  local seq, taken = S[SEQ], 0
  for i = 1, count do
    while not r or r.found == r.limit or r.bytes >= DEQUEUE_PAYLOAD_BYTES do
      if r and r.found < r.limit then r.ended = PAYLOAD_BOUND end
      r = at <= last and requests[at]
      if not r then break end
      at = at + 1
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
      head = lease_again(id, head, worker, lease_ms, due, seq)
    else
      -- The bytes that encode_head would make for a first lease, without decoding the record.
      head = head_front .. pack('>I7', seq) .. lease_field .. sub(body, 1, 13) .. worker_field .. fixed
      add_event(FIRST_LEASE, id, '', head)
    end
    new_heads[2 * i - 1], new_heads[2 * i] = id, head
    running[2 * i - 1], running[2 * i] = due_text, id
    if #indexes > 0 then index_move(id, fixed, PENDING, RUNNING, members[i]) end
    give(r, id, head, body, due, #body - #fixed - 13, seq)
  end
  if taken == 0 then return 0 end
  call('ZREMRANGEBYRANK', K_READY, 0, taken - 1)
  call('HSET', K_HEAD, unpack(new_heads))
  call('ZADD', K_RUNNING, unpack(running))
  S[SEQ] = seq
  S[COUNT + PENDING], S[COUNT + RUNNING] = S[COUNT + PENDING] - taken, S[COUNT + RUNNING] + taken
  return taken
end

-- Leases up to `wanted` messages to the requests from `from` to `to`.
local function lease_ready(requests, from, to, wanted)
  while wanted > 0 do
    if is_full() then
      for short = from, to do
        local r = requests[short]
        if r.found < r.limit and r.ended == 0 then r.ended = WORK_BOUND end
      end
      return
    end
    local taken = lease_chunk(requests, from, to, wanted)
    if taken == 0 then return end
    wanted = wanted - taken
  end
end
