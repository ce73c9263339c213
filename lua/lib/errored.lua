-- errored: the errored messages, and the sum of their payload bytes (Q22).
--   errored        sorted set: when it ended -> sequence(7) id
--   errored_bytes  string: a number; not there: 0
-- A message that version 0.1 ended is in `done` instead, until a sweep finds it there.
local function errored_member(m)
  return pack('>I7', m.seq) .. m.id
end

local function payload_bytes(m)
  return call('HSTRLEN', K_BODY, m.id) - #m.fixed - 13
end

local function too_many_errored(count, bytes)
  return count > max_errored or bytes > max_errored_bytes
end

-- A sweep drops the oldest beyond the bounds: here it would make a Release as long as the queue has too many.
local function keep_errored(m)
  call('ZADD', K_ERRORED, m.since, errored_member(m))
  local bytes = call('INCRBY', K_ERRORED_BYTES, payload_bytes(m))
  note_due(too_many_errored(call('ZCARD', K_ERRORED), bytes) and now or m.since + errored_retention_ms)
end

-- Its body is still there.
local function forget_errored(m)
  if call('ZREM', K_ERRORED, errored_member(m)) == 0 then return end
  if call('DECRBY', K_ERRORED_BYTES, payload_bytes(m)) == 0 then call('DEL', K_ERRORED_BYTES) end
end
