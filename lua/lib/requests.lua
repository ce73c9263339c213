-- requests: the memory of answered Dequeue requests (Q10): request id -> until(6), then fencing token(7) and id of each
-- lease. A record is deleted when its last lease has ended, extensions included.
local function forget_requests(limit)
  local due = call('ZRANGEBYSCORE', K_REQUEST_DUE, '-inf', now, 'LIMIT', 0, limit)
  for _, request_id in ipairs(due) do
    local raw, at, lives_until = call('HGET', K_REQUESTS, request_id), 7, 0
    while at <= #raw do
      local fencing_token, id
      fencing_token, id, at = unpick('>I7Bc0', raw, at)
      local head = call('HGET', K_HEAD, id)
      local m = head and decode_head(id, head)
      if m and m.state == RUNNING and m.fencing_token == fencing_token then
        lives_until = math.max(lives_until, m.due)
      end
    end
    if lives_until > now then
      call('ZADD', K_REQUEST_DUE, lives_until, request_id)
    else
      call('ZREM', K_REQUEST_DUE, request_id)
      call('HDEL', K_REQUESTS, request_id)
    end
  end
end
