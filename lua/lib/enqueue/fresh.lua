-- enqueue/fresh: new messages. Those that are visible at once gather in a batch that flush writes.
local bodies, ready, added = {}, {}, 0
local now6 = pack('>I6', now)
local ACCEPTED = event_front(GONE, PENDING, BY_ENQUEUE, 1, '')
local live = S[COUNT + INVISIBLE] + S[COUNT + PENDING] + S[COUNT + RUNNING]
local outbox_full = outbox_refuse > 0 and S[ADDED] - S[ACKED] >= outbox_refuse

-- RETURNS why the queue accepts no new message; nil: it does.
local function no_room()
  if max_depth > 0 and live >= max_depth then return QUEUE_FULL end
  if outbox_full then return OUTBOX_FULL end
end

local function flush()
  if #bodies == 0 then return end
  call('HSET', K_BODY, unpack(bodies))
  if exclusive then write_keys() elseif #ready > 0 then call('ZADD', K_READY, unpack(ready)) end
  bodies, ready = {}, {}
end

local function payload_of(content, fixed)
  return pack('>I2', math.min(#content - #fixed, payload_kept)) .. sub(content, #fixed + 1, #fixed + payload_kept)
end

local function add_invisible(id, body, content, fixed)
  flush()
  call('HSET', K_BODY, id, body)
  local m = decode_body(id, body)
  local _, invisibility_ms = options_of(fixed)
  m.from, m.version, m.due = GONE, 0, now + (invisibility_ms or default_invisibility_ms)
  enter(m, INVISIBLE, BY_ENQUEUE, '')
  if payload_kept > 0 and outbox_keep > 0 then
    local n = #events
    events[n - PIECES + 1], events[n] = with_payload(events[n - PIECES + 1]), events[n] .. payload_of(content, fixed)
  end
end

-- RETURNS outcome, enqueued_at.
local function add_fresh(id, content, kind)
  local refused = no_room()
  if refused then return refused, 0 end
  live = live + 1
  S[SEQ] = S[SEQ] + 1
  local seq7 = pack('>I7', S[SEQ])
  local fixed = sub(content, 1, 10 + byte(content, 9) * 256 + byte(content, 10))
  local body = seq7 .. now6 .. content
  if kind % 4 >= 2 then
    add_invisible(id, body, content, fixed)
    return OK, now
  end
  bodies[#bodies + 1] = id
  bodies[#bodies + 1] = body
  local member = sub(content, 1, 8) .. seq7 .. id
  if exclusive then place_fresh(value_of(fixed), member)
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
