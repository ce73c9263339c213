-- dequeue/filtered: leases for a request with filters, one message at a time.
-- A locked head on the way is parked until its value is free, at most PARK_MAX of them in one call.
local PARK_MAX = 256
local parked = 0
-- The first messages under filters that this call has read, by their members: many filters may have the same one.
local seen = {}

-- Restores values that earlier calls could not restore in full (lib/index, `U`). RETURNS whether there may be more.
local function restore_rest()
  while S[PARKED] > 0 do
    local rest = first(K_PARKED, 'U')
    if not rest then return false end
    if restored == RESTORE_MAX then return true end
    restore_parked(sub(rest, 3))
  end
  return false
end

-- As load_message. `body`: what it had to read of it, if anything.
local function see(member)
  local m = seen[member]
  if not m then
    local id = sub(member, 16)
    local head = call('HGET', K_HEAD, id)
    if head then m = decode_head(id, head)
    else
      local body = call('HGET', K_BODY, id)
      bytes_read = bytes_read + #body
      m = decode_body(id, body)
      m.body = body
    end
    seen[member] = m
  end
  return m
end

-- RETURNS the most urgent message under one filter whose value is free, and its member; third: a bound was met.
local function next_runnable(filter)
  local prefix = 'R' .. filter.tuple
  while true do
    local entry = first(filter.index.order, prefix)
    bytes_read = bytes_read + FIND_BYTES
    if not entry then return nil end
    local member = sub(entry, #prefix + 1)
    local m = see(member)
    if not exclusive then return m, member end
    local value = value_of(m.fixed)
    if get_key(value) ~= LOCKED then return m, member end
    if parked == PARK_MAX or is_full() then return nil, nil, true end
    parked = parked + 1
    call('ZREM', filter.index.order, entry)
    S[PARKED] = S[PARKED]
      + call('ZADD', K_PARKED, 0, 'P' .. char(#value) .. value .. filter.index.slot .. filter.tuple)
  end
end

-- Finds the first message of each filter that has none in `heads`; false: there is none. RETURNS whether a bound was met.
local function find_heads(filters, heads)
  for i, filter in ipairs(filters) do
    if heads[i] == nil then
      local m, member, bound = next_runnable(filter)
      if bound then return true end
      heads[i] = m and {m = m, member = member} or false
    end
  end
end

local function best_of(heads, count)
  local best
  for i = 1, count do
    local head = heads[i]
    if head and (not best or before(head.member, best.member)) then best = head end
  end
  return best
end

-- WHY the others stand: a lease changes only what comes first under filters which that message passes, and what of its value
-- may run.
local function drop_heads(heads, count, leased)
  local value = exclusive and value_of(leased.fixed)
  for i = 1, count do
    local m = heads[i] and heads[i].m
    if m and (m.id == leased.id or exclusive and value_of(m.fixed) == value) then heads[i] = nil end
  end
end

local function lease_filtered(r)
  local heads, count = {}, #r.filters
  while r.found < r.limit do
    if is_full() or find_heads(r.filters, heads) then
      r.ended = WORK_BOUND
      return
    end
    local best = best_of(heads, count)
    if not best then return end
    if r.bytes >= DEQUEUE_PAYLOAD_BYTES then
      r.ended = PAYLOAD_BOUND
      return
    end
    local m = best.m
    seen[best.member] = nil
    local own_lease_ms = options_of(m.fixed)
    leave(m, RUNNING)
    S[SEQ] = S[SEQ] + 1
    m.lease_ms = r.lease_ms > 0 and r.lease_ms or own_lease_ms or default_lease_ms
    m.due, m.attempts, m.fencing_token = now + m.lease_ms, m.attempts + 1, S[SEQ]
    m.extended, m.worker, m.flags = NOT_EXTENDED, r.worker, m.flags % REDRIVEN
    enter(m, RUNNING, BY_DEQUEUE, '')
    local body = m.body or call('HGET', K_BODY, m.id)
    give(r, m.id, encode_head(m), body, m.due, #body - #m.fixed - 13, m.fencing_token)
    drop_heads(heads, count, m)
  end
end
