-- requests: the memory of what Dequeue gave, in one hash (Q10):
--   request id              -> until(6), then fencing token(7) and id of each lease, its length(1) before it
--   '\0' server(8) slot(1)  -> what the ticket of the slot gave (lib/dequeue/ticket). The next ticket overwrites it.
-- The record of a request id is deleted soon after its last lease has ended; that of a slot when its leases would have ended
-- without extensions. A request id is first examined FORGET_AFTER_MS after the Dequeue, then each time when its oldest lease
-- has lived as long again: so a lease of an hour that ends at once is remembered for seconds, and one that lives costs few
-- examinations. The scores of slots are FAR later: a server of version 0.1, which cannot
-- read their records, never finds them due. The ids of ended messages are in the same hash (lib/ids).
local function remembered(raw)
  local all, at = {}, 7
  while at <= #raw do
    local token, id
    token, id, at = unpick('>I7Bc0', raw, at)
    all[#all + 1] = {fencing_token = token, id = id}
  end
  return all
end

-- RETURNS the head of a remembered lease, when the lease ends, and when it began; nil: it is over.
local function living(id, token)
  local head = call('HGET', K_HEAD, id)
  local m = head and decode_head(id, head)
  if m and m.state == RUNNING and m.fencing_token == token then return head, m.due, m.since end
end

-- WHY no sweep before FORGET_EVERY_MS: a busy queue must not be swept for each of its requests.
-- WHY a bound on bytes: a record has up to a thousand leases, and Redis reads it as a whole.
local FORGET_LEASES_MAX, FORGET_BYTES_MAX, FORGET_AFTER_MS, FORGET_EVERY_MS = 1024, 2097152, 2000, 30000

-- RETURNS when to examine a request id again, and how many leases that took to find out; nil: its leases are over.
local function living_until(raw)
  local read, at = 0, 7
  while at <= #raw do
    local token, id
    token, id, at = unpick('>I7Bc0', raw, at)
    read = read + 1
    local _, ends, since = living(id, token)
    if ends and ends > lease_now then return math.min(ends + now - lease_now, now + math.max(FORGET_AFTER_MS, now - since)), read end
  end
  return nil, read
end

-- `base`: 0 forgets request ids, FAR slots. RETURNS whether it met a bound on what it reads, so that more are due.
local function forget(base, limit)
  local due, read, bytes = call('ZRANGEBYSCORE', K_REQUEST_DUE, base, base + now, 'LIMIT', 0, limit), 0, 0
  for _, name in ipairs(due) do
    if read >= FORGET_LEASES_MAX or bytes >= FORGET_BYTES_MAX then return true end
    local raw = call('HGET', K_REQUESTS, name)
    bytes = bytes + #raw
    local again_at, leases = (unpick('>I6', raw)), 0
    if base == 0 then again_at, leases = living_until(raw) end
    read = read + leases
    if again_at and again_at > now then
      call('ZADD', K_REQUEST_DUE, base + again_at, name)
    else
      call('ZREM', K_REQUEST_DUE, name)
      call('HDEL', K_REQUESTS, name)
    end
  end
  return false
end

-- RETURNS when the next record may be forgotten; nil: there is none.
local function next_forget()
  local id = call('ZRANGE', K_REQUEST_DUE, 0, 0, 'WITHSCORES')[2]
  local slot = call('ZRANGE', K_REQUEST_DUE, FAR, 2 * FAR - 1, 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
  if not id then return nil end
  return math.min(tonumber(id), (tonumber(slot or 2 * FAR)) - FAR)
end
