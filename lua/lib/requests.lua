-- requests: the memory of what Dequeue gave, in one hash (Q10):
--   request id              -> until(6), then fencing token(7) and id of each lease, its length(1) before it
--   '\0' server(8) slot(1)  -> what the ticket of the slot gave (lib/dequeue/ticket). The next ticket overwrites it.
-- The record of a request id is deleted when its last lease has ended, extensions included; that of a slot when its
-- leases would have ended without extensions. The scores of slots are FAR later: a server of version 0.1, which cannot
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

-- RETURNS the head of a remembered lease, and when the lease ends; nil: it is over.
local function living(lease)
  local head = call('HGET', K_HEAD, lease.id)
  local m = head and decode_head(lease.id, head)
  if m and m.state == RUNNING and m.fencing_token == lease.fencing_token then return head, m.due end
end

-- `base`: 0 forgets request ids, FAR slots. Of remembered leases it reads a bounded number.
local FORGET_LEASES_MAX = 1024
local function forget(base, limit)
  local due, read = call('ZRANGEBYSCORE', K_REQUEST_DUE, base, base + now, 'LIMIT', 0, limit), 0
  for _, name in ipairs(due) do
    if read >= FORGET_LEASES_MAX then return end
    local raw = call('HGET', K_REQUESTS, name)
    local lives_until = (unpick('>I6', raw))
    if lives_until <= now and base == 0 then
      for _, lease in ipairs(remembered(raw)) do
        local _, ends = living(lease)
        lives_until, read = math.max(lives_until, ends or 0), read + 1
      end
    end
    if lives_until > now then
      call('ZADD', K_REQUEST_DUE, base + lives_until, name)
    else
      call('ZREM', K_REQUEST_DUE, name)
      call('HDEL', K_REQUESTS, name)
    end
  end
end

-- RETURNS when the next record may be forgotten; nil: there is none.
local function next_forget()
  local id = call('ZRANGE', K_REQUEST_DUE, 0, 0, 'WITHSCORES')[2]
  local slot = call('ZRANGE', K_REQUEST_DUE, FAR, 2 * FAR - 1, 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
  if not id then return nil end
  return math.min(tonumber(id), (tonumber(slot or 2 * FAR)) - FAR)
end
