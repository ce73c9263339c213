-- exclusive: the lock and the order of each exclusivity value (Q4).
-- keys[value] is waiting(4) member. `member` is the head of the value, which is in ready, or its running message, which
-- is not: a value is locked if its member is not in ready. So a Dequeue that takes heads from ready locks their values
-- without another write. `waiting` counts the other messages of the value, which are in backlog under its prefix. A
-- value without messages has no entry. Nothing here ever scans past locked work.
-- (The priority in the member of a running message may be outdated; its id and sequence are not.)
local FREE, LOCKED = 1, 2

local function get_key(value)
  local raw = call('HGET', K_KEYS, value)
  if not raw then return nil end
  local member = sub(raw, 5)
  local waiting = unpick('>I4', raw)
  return call('ZSCORE', K_READY, member) and FREE or LOCKED, waiting, member
end

local function set_key(value, waiting, member)
  call('HSET', K_KEYS, value, pack('>I4', waiting) .. member)
end

local function backlog_prefix(value)
  return char(#value) .. value
end

-- Adds a message that becomes pending.
local function place_in_key(value, member)
  local kind, waiting, head = get_key(value)
  if not kind then
    call('ZADD', K_READY, 0, member)
    became_ready = became_ready + 1
    return set_key(value, 0, member)
  end
  -- Behind the head of a free value it is runnable too, for a caller whose filter the head does not pass.
  if kind == FREE then became_ready = became_ready + 1 end
  if kind == FREE and before(member, head) then
    call('ZREM', K_READY, head)
    call('ZADD', K_READY, 0, member)
    call('ZADD', K_BACKLOG, 0, backlog_prefix(value) .. head)
    return set_key(value, waiting + 1, member)
  end
  call('ZADD', K_BACKLOG, 0, backlog_prefix(value) .. member)
  set_key(value, waiting + 1, head)
end

-- The value is free: its next message, if any, becomes the head.
local function promote_in_key(value, waiting)
  if waiting == 0 then return call('HDEL', K_KEYS, value) end
  local prefix = backlog_prefix(value)
  local next_up = first(K_BACKLOG, prefix)
  local member = sub(next_up, #prefix + 1)
  call('ZREM', K_BACKLOG, next_up)
  call('ZADD', K_READY, 0, member)
  became_ready = became_ready + 1
  set_key(value, waiting - 1, member)
end

-- Removes a pending message that does not run.
local function remove_from_key(value, member)
  local kind, waiting, head = get_key(value)
  if kind == FREE and head == member then
    call('ZREM', K_READY, member)
    return promote_in_key(value, waiting)
  end
  call('ZREM', K_BACKLOG, backlog_prefix(value) .. member)
  set_key(value, waiting - 1, head)
end

-- Locks a free value for a pending message. If that is not the head (a filter chose it), the head waits.
local function lock_key(value, member)
  local _, waiting, head = get_key(value)
  call('ZREM', K_READY, head)
  if head ~= member then
    call('ZADD', K_BACKLOG, 0, backlog_prefix(value) .. head)
    call('ZREM', K_BACKLOG, backlog_prefix(value) .. member)
    set_key(value, waiting, member)
  end
end

local function unlock_key(value)
  local _, waiting = get_key(value)
  promote_in_key(value, waiting)
end
