-- requests: the memory of what Dequeue gave, in one hash (Q10):
--   request id              -> until(6), then fencing token(7) and id of each lease
--   '\0' server(8) slot(1)  -> until(6), number of the try(7), then of each request without an id that got leases:
--                              position(2) count(2) fencing token of the first(7) ids. The tokens of one request follow
--                              each other. The next ticket of the slot overwrites it (lib/dequeue/ticket).
-- Each id is behind its length(1). A record is deleted when its last lease has ended, extensions included. The scores of
-- slots are FAR later: a server of version 0.1, which cannot read their records, never finds them due. The ids of ended messages
-- are in the same hash (lib/ids).
local function remembered(name, raw)
  local all, at = {}, 7
  if byte(name) == 0 then at = 14 end
  while at <= #raw do
    local position, count, token, id = 0, 1, nil, nil
    if byte(name) == 0 then position, count, at = unpick('>I2I2', raw, at) end
    token, at = unpick('>I7', raw, at)
    for i = 0, count - 1 do
      id, at = unpick('>Bc0', raw, at)
      all[#all + 1] = {position = position, fencing_token = token + i, id = id}
    end
  end
  return all
end

-- RETURNS the head of a remembered lease, and when the lease ends; nil: it is over.
local function living(lease)
  local head = call('HGET', K_HEAD, lease.id)
  local m = head and decode_head(lease.id, head)
  if m and m.state == RUNNING and m.fencing_token == lease.fencing_token then return head, m.due end
end

-- `base`: 0 forgets request ids, FAR slots.
local function forget(base, limit)
  local due = call('ZRANGEBYSCORE', K_REQUEST_DUE, base, base + now, 'LIMIT', 0, limit)
  for _, name in ipairs(due) do
    local raw = call('HGET', K_REQUESTS, name)
    local lives_until = (unpick('>I6', raw))
    if lives_until <= now then
      for _, lease in ipairs(remembered(name, raw)) do
        local _, ends = living(lease)
        lives_until = math.max(lives_until, ends or 0)
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
