-- move: one transition of one message, in two halves: `leave` removes it from its place, the caller changes the fields
-- that it wants, and `enter` adds it to the next place. Every transition that is not on a hot path uses these.
--@include errored
--@include attempts

-- Bytes of payloads and attempts that transitions of this call have read or written: what moves many messages bounds them.
local moved_bytes = 0

local function leave(m, to)
  m.from, m.member_before = m.state, member_of(m)
  if m.from == PENDING then
    if not exclusive then call('ZREM', K_READY, m.member_before)
    elseif to == RUNNING then lock_key(value_of(m.fixed), m.member_before)
    else remove_from_key(value_of(m.fixed), m.member_before) end
  elseif m.from == INVISIBLE then
    call('ZREM', K_INVISIBLE, m.id)
  elseif m.from == RUNNING and to ~= RUNNING then
    call('ZREM', K_RUNNING, m.id)
    if exclusive then
      local value = value_of(m.fixed)
      unlock_key(value)
      if S[PARKED] > 0 then restore_parked(value) end
    end
  elseif m.from == ERRORED then
    forget_errored(m)
  end
end

local function enter(m, to, by, reason)
  local member = member_of(m)
  if to == PENDING then
    if exclusive then place_in_key(value_of(m.fixed), member)
    else
      call('ZADD', K_READY, 0, member)
      became_ready = became_ready + 1
    end
  elseif to == INVISIBLE then
    call('ZADD', K_INVISIBLE, m.due, m.id)
    note_due(m.due)
  elseif to == RUNNING then
    call('ZADD', K_RUNNING, m.due, m.id)
    note_due(m.due)
  elseif to ~= ERRORED then
    note_due(now + retention_ms)
  end
  local left_since = m.since
  m.version = m.version + 1
  if to ~= m.from then
    m.state, m.since = to, now
    if m.from ~= GONE then S[COUNT + m.from] = S[COUNT + m.from] - 1 end
    S[COUNT + to] = S[COUNT + to] + 1
  end
  if to == ERRORED then keep_errored(m)
  elseif to > RUNNING then call('RPUSH', K_DONE, done_entry(m)) end
  local head = encode_head(m)
  call('HSET', K_HEAD, m.id, head)
  local left = to ~= m.from and m.version > 2 and pack('>I6', left_since) or ''
  local front, payload = event_front(m.from, to, by, m.version, reason), ''
  -- Where history keeps no payloads, it keeps those of messages that failed.
  if to == ERRORED and errored_payload_kept > 0 then
    payload = call('HGET', K_BODY, m.id)
    moved_bytes = moved_bytes + #payload
    payload = sub(payload, 14 + #m.fixed, 13 + #m.fixed + errored_payload_kept)
    moved_bytes = moved_bytes + #payload
    front, payload = with_payload(front), pack('>I2', #payload) .. payload
  end
  add_event(front, m.id, left, head .. payload)
  if #indexes > 0 then index_move(m.id, m.fixed, m.from, to, m.member_before, member) end
end

-- Deletes a terminal message.
local function collect(m, reason)
  call('HDEL', K_ATTEMPTS, m.id)
  local result
  if m.state == ERRORED then forget_errored(m)
  elseif m.state == COMPLETED then
    result = call('HGET', K_RESULTS, m.id)
    call('HDEL', K_RESULTS, m.id)
  end
  call('HDEL', K_BODY, m.id)
  call('HDEL', K_HEAD, m.id)
  S[COUNT + m.state] = S[COUNT + m.state] - 1
  local front, head = event_front(m.state, GONE, BY_COLLECT, m.version + 1, reason or ''), encode_head(m)
  if result then front, head = with_payload(front), head .. pack('>I2', #result) .. result end
  add_event(front, m.id, '', head)
  if #indexes > 0 then index_move(m.id, m.fixed, m.state, GONE) end
end

-- Records how the current lease ends, so that a repeated call of its holder gets the same answer (Q10).
local function end_lease(m, how, to)
  m.ended_fencing_token, m.ended_how, m.ended_version = m.fencing_token, how + to, m.version + 1
end

-- The delay after a failed attempt, with the same arithmetic as Backoff::delay_ms of the model.
local function backoff_ms(attempts, fencing_token)
  if backoff_kind == 0 then return 0 end
  local full = backoff_base_ms
  if backoff_kind == 2 then full = full * 2 ^ math.min(attempts - 1, 46) end
  full = math.min(full, backoff_max_ms)
  local draw = (fencing_token % 1000003) * 48271 % 2147483647
  return full - math.floor(math.floor(full * backoff_jitter / 100) * (draw % 1000) / 1000)
end

-- Ends a run without success: the message runs again now, later or never. `delay_ms` nil: the queue's backoff. `required`:
-- the state that it gets, whatever attempts are left: a terminal one, or PENDING if no worker got the lease. Then this was no attempt.
local function end_run(m, how, by, reason, delay_ms, required)
  local _, _, own_max_attempts = options_of(m.fixed)
  local marked = m.flags % 2 == 1
  local to, due = required or ERRORED, 0
  if not required and (marked or m.attempts < (own_max_attempts or default_max_attempts)) then
    delay_ms = delay_ms or backoff_ms(m.attempts, m.fencing_token)
    if delay_ms > 0 then to, due = INVISIBLE, now + delay_ms else to = PENDING end
  end
  if required == PENDING then m.attempts = m.attempts - 1
  else moved_bytes = moved_bytes + remember_attempt(m, to, reason) end
  leave(m, to)
  if marked then m.flags = m.flags - MARKED end
  if marked and to <= RUNNING then m.attempts = 0 end
  if reason ~= '' then m.reason = reason end
  m.due = due
  end_lease(m, how, to)
  enter(m, to, by, reason)
end
