-- dequeue/ticket: what the tries under this ticket have given so far, so that a repeat collects what a lost reply gave
-- (Q10; docs/decisions/0026; lib/requests has the record's layout).
-- ARGV[6] '' (no ticket), or packed: server(8) slot(1), number of the first try(7), number of this try(7)
-- After a repeat the record stays so long at least: a late try must find that it was overtaken.
local OVERTAKEN_KNOWN_MS = 60000
local ticket = {}
if #ARGV[6] > 0 then
  ticket.name = '\0' .. sub(ARGV[6], 1, 9)
  ticket.first, ticket.number = unpick('>I7I7', ARGV[6], 10)
  ticket.raw = call('HGET', K_REQUESTS, ticket.name) or nil
  ticket.last = ticket.raw and (unpick('>I7', ticket.raw, 7)) or 0
  ticket.goes_on = ticket.last >= ticket.first
end

-- Replays to each request without an id what an earlier try gave it.
local function replay_ticket(requests)
  if not ticket.goes_on then return end
  local given = {}
  for _, lease in ipairs(remembered(ticket.name, ticket.raw)) do
    given[lease.position] = given[lease.position] or {}
    table.insert(given[lease.position], lease)
  end
  for _, r in ipairs(requests) do
    if r.request_id == '' and not r.goes_on and given[r.position] then replay(r, given[r.position]) end
  end
end

-- WHY a first try that gives nothing writes nothing: idle servers cost no write, and what it would overwrite is over.
local function remember_ticket(requests)
  if not ticket.name then return end
  local parts, n, until_ms = {}, 1, 0
  for _, r in ipairs(requests) do
    if r.found > 0 and r.request_id == '' and not r.replayed then
      parts[n + 1] = pack('>I2I2', r.position, r.found) .. sub(leases[r.first + 1], 33, 39)
      n = n + 1
      for i = r.first, r.first + 3 * r.found - 1, 3 do
        parts[n + 1], parts[n + 2] = char(#leases[i]), leases[i]
        n = n + 2
      end
      if r.until_ms > until_ms then until_ms = r.until_ms end
    end
  end
  local is_repeat = ticket.number > ticket.first
  if n == 1 and not is_repeat then return end
  if is_repeat then until_ms = math.max(until_ms, now + OVERTAKEN_KNOWN_MS) end
  parts[1] = ''
  if ticket.goes_on then
    until_ms, parts[1] = math.max(until_ms, (unpick('>I6', ticket.raw))), sub(ticket.raw, 14)
  end
  local record = pack('>I6I7', until_ms, ticket.number) .. table.concat(parts)
  if call('HSET', K_REQUESTS, ticket.name, record) == 1 then
    call('ZADD', K_REQUEST_DUE, FAR + until_ms, ticket.name)
  end
end
