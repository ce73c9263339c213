-- dequeue/filtered: leases for a request with filters, one message at a time.
-- A locked head on the way is parked until its value is free, at most PARK_MAX of them in one call.
local PARK_MAX = 256
local parked = 0

-- Restores one value that an earlier call could not restore in full (lib/index, `U`). RETURNS whether there was one.
local function restore_rest()
  local rest = S[PARKED] > 0 and first(K_PARKED, 'U')
  if rest then restore_parked(sub(rest, 3)) end
  return rest
end

-- RETURNS the most urgent message under one filter whose value is free, and its member; third: PARK_MAX was met.
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

-- RETURNS the most urgent message that passes any of the filters; second: PARK_MAX was met.
local function best_of(filters)
  local best, best_member
  for _, filter in ipairs(filters) do
    local m, member, bound = next_runnable(filter)
    if bound then return nil, true end
    if m and (not best or before(member, best_member)) then best, best_member = m, member end
  end
  return best, false
end

local function lease_filtered(r)
  if is_full() then
    r.ended = WORK_BOUND
    return
  end
  while r.found < r.limit do
    local m, bound = best_of(r.filters)
    if bound then r.ended = WORK_BOUND end
    if not m then return end
    if r.bytes >= DEQUEUE_PAYLOAD_BYTES then
      r.ended = PAYLOAD_BOUND
      return
    end
    local own_lease_ms = options_of(m.fixed)
    leave(m, RUNNING)
    S[SEQ] = S[SEQ] + 1
    m.lease_ms = r.lease_ms > 0 and r.lease_ms or own_lease_ms or default_lease_ms
    m.due, m.attempts, m.fencing_token = now + m.lease_ms, m.attempts + 1, S[SEQ]
    m.extended, m.worker, m.flags = NOT_EXTENDED, r.worker, m.flags % REDRIVEN
    enter(m, RUNNING, BY_DEQUEUE, '')
    local body = call('HGET', K_BODY, m.id)
    give(r, m.id, encode_head(m), body, m.due, #body - #m.fixed - 13, m.fencing_token)
  end
end
