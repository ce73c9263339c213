-- record: the packed records of one message. The Rust side of every layout is in lua/src/record/.
--   fixed  priority(8, order-preserving) length(2) options metadata     the part that every event repeats
--   body   sequence(7) enqueued_at(6) fixed payload                     written once, at Enqueue
--   head   the mutable part; a message without one is pending at version 1
--   member priority(8) sequence(7) id                                   its entry in every ordered set
--   done   version(4) ended_at(6) sequence(7) id                        its entry in the list of terminal messages
-- WHY a pending message has no head: it saves 133 bytes for each of ten million messages.
local HEAD = '>BI4I6I6I7BI4BI2I7I4c8I7I6Bc0Bc0'
local HEAD_TAIL = 65 -- where worker, reason and fixed begin
local MARKED, REDRIVEN = 1, 2 -- flags, a set of bits
local ENDED_COMPLETE, ENDED_RELEASE, ENDED_CANCEL, ENDED_LAPSE = 16, 32, 48, 64 -- plus the state it went to
local NOT_EXTENDED = string.rep('\0', 8)

local function fixed_of_body(body)
  local high, low = byte(body, 22, 23)
  return sub(body, 14, 23 + high * 256 + low)
end

local DONE_AT, DONE_ID = 5, 18 -- where the time and the id begin in a done entry

-- Where fixed begins in a head.
local function fixed_at(head)
  local reason_at = HEAD_TAIL + 1 + byte(head, HEAD_TAIL)
  return reason_at + 1 + byte(head, reason_at)
end

local function decode_head(id, head)
  local m, tail = {id = id}, nil
  m.state, m.version, m.since, m.due, m.ended_fencing_token, m.ended_how, m.ended_version, m.flags, m.attempts, m.fencing_token,
    m.lease_ms, m.extended, m.seq, m.enqueued, m.worker, m.reason, tail = unpick(HEAD, head)
  m.fixed = sub(head, tail)
  return m
end

local function decode_body(id, body)
  local seq, enqueued = unpick('>I7I6', body)
  return {id = id, state = PENDING, version = 1, since = enqueued, due = 0, ended_fencing_token = 0, ended_how = 0,
    ended_version = 0, flags = 0, attempts = 0, fencing_token = 0, lease_ms = 0, extended = NOT_EXTENDED, seq = seq,
    enqueued = enqueued, worker = '', reason = '', fixed = fixed_of_body(body)}
end

local function encode_head(m)
  return pack(HEAD, m.state, m.version, m.since, m.due, m.ended_fencing_token, m.ended_how, m.ended_version, m.flags,
    m.attempts, m.fencing_token, m.lease_ms, m.extended, m.seq, m.enqueued, #m.worker, m.worker, #m.reason, m.reason) .. m.fixed
end

local function load_message(id)
  local head = call('HGET', K_HEAD, id)
  if head then return decode_head(id, head) end
  local body = call('HGET', K_BODY, id)
  return body and decode_body(id, body)
end

-- As load_message, where only what has run or ended matters: of a message without head it does not read the body, which may be
-- large, and RETURNS no more than that it is pending.
local function load_changed(id)
  local head = call('HGET', K_HEAD, id)
  if head then return decode_head(id, head) end
  if call('HEXISTS', K_BODY, id) == 1 then
    return {id = id, state = PENDING, version = 1, flags = 0, ended_fencing_token = 0, ended_how = 0}
  end
end

-- Whether the lease with this fencing token was ended by `how`: then this call is a repetition (Q10).
local function ended_by(fencing_token, how, ended_fencing_token, ended_how)
  return ended_fencing_token == fencing_token and ended_how - ended_how % 16 == how
end

local function member_of(m)
  return sub(m.fixed, 1, 8) .. pack('>I7', m.seq) .. m.id
end

-- After a redrive, or an enqueue of the same id, this differs from the entry in the list: that entry is stale.
local function done_entry(m)
  return pack('>I4I6I7', m.version, m.since, m.seq) .. m.id
end

-- RETURNS the message's own lease_ms, invisibility_ms and max_attempts (nil: the queue's), and where its metadata begins,
-- behind the name of its priority class.
-- `fixed` may be a whole record that ends with fixed, which then begins at `from`.
local function options_of(fixed, from)
  local at = (from or 1) + 10
  if #fixed < at then return nil, nil, nil, at end
  local flags
  flags, at = byte(fixed, at), at + 1
  local lease_ms, invisibility_ms, max_attempts
  if flags % 2 == 1 then lease_ms, at = unpick('>I4', fixed, at) end
  if flags % 4 > 1 then invisibility_ms, at = unpick('>I6', fixed, at) end
  if flags % 8 > 3 then max_attempts, at = unpick('>I2', fixed, at) end
  if flags > 7 then at = at + 1 + byte(fixed, at) end
  return lease_ms, invisibility_ms, max_attempts, at
end

-- The exclusivity value in the fixed that begins at `at`: in an exclusive queue that pair is the first.
local function value_at(record, at)
  local _
  _, _, _, at = options_of(record, at)
  at = at + 1 + byte(record, at)
  return sub(record, at + 1, at + byte(record, at))
end

local function value_of(fixed)
  return value_at(fixed, 1)
end
