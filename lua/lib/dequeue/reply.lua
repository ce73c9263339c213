-- dequeue/reply: what a Dequeue leaves behind: the memory of its request ids, the mark of waiting callers, the reply.

-- Keeps the leases of each request under its id, for a retry (lib/requests has the layout).
local function remember_requests(requests)
  local records, record_due = {}, {}
  for _, r in ipairs(requests) do
    if r.found > 0 and r.request_id ~= '' and not r.replayed then
      local earlier = r.goes_on and call('HGET', K_REQUESTS, r.request_id)
      if earlier then r.until_ms = math.max(r.until_ms, (unpick('>I6', earlier))) end
      local record = {pack('>I6', r.until_ms), earlier and sub(earlier, 7) or ''}
      for i = r.first, r.first + 3 * r.found - 1, 3 do
        local id = leases[i]
        record[#record + 1] = sub(leases[i + 1], 33, 39) .. char(#id) .. id
      end
      records[#records + 1], records[#records + 2] = r.request_id, table.concat(record)
      record_due[#record_due + 1], record_due[#record_due + 2] = math.min(r.until_ms, now + FORGET_AFTER_MS), r.request_id
    end
  end
  if #records == 0 then return end
  call('HSET', K_REQUESTS, unpack(records))
  call('ZADD', K_REQUEST_DUE, unpack(record_due))
  note_due(now + FORGET_EVERY_MS)
end

-- Callers may wait on this server: from now on a script of another server that makes a message runnable publishes it.
local function mark_waiting()
  if S[WAIT_UNTIL] <= now or waiter == ARGV[4] then waiter = ARGV[4] else waiter = '*' end
  S[WAIT_UNTIL] = now + WAIT_MARK_MS
end

local function reply_of(requests, expired, errored)
  local reply = {OK, expired, errored, now, call('ZCARD', K_READY), next_due()}
  local n = 6
  if byte(ARGV[3]) >= 4 then
    local member = call('ZRANGEBYLEX', K_READY, '-', '+', 'LIMIT', '0', '1')[1]
    n = 7
    reply[n] = member and sub(member, 1, 8) or ''
  end
  for _, r in ipairs(requests) do
    reply[n + 1], reply[n + 2] = r.found, r.ended
    n = n + 2
    for i = r.first, r.first + 3 * r.found - 1 do
      n = n + 1
      reply[n] = leases[i]
    end
  end
  return reply
end
