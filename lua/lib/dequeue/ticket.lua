-- dequeue/ticket: what the tries under this ticket have given so far, so that a repeat collects what a lost reply gave
-- (Q10; docs/decisions/0026).
-- ARGV[6] '' (no ticket), or packed: server(8) slot(1), number of the first try(7), number of this try(7)
-- Record: until(6), number of the try(7), then of each run of leases that a request without an id got: position of the
--         request(2), number of leases(2), when they end(6), fencing token of the first(7). The tokens follow each other.
-- WHY no ids: only a repeat needs them, and finds them by the end of the leases. Until then no worker has
-- these leases, so none is extended.
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

-- The running messages whose leases end at this time: fencing token -> id. Those of one time are read once.
local running_until = {}
local function running_at(due)
  local ids = running_until[due]
  if not ids then
    ids = {}
    for _, id in ipairs(call('ZRANGEBYSCORE', K_RUNNING, due, due)) do
      ids[unpick('>I7', call('HGET', K_HEAD, id), 33)] = id
    end
    running_until[due] = ids
  end
  return ids
end

-- Replays to each request without an id what an earlier try gave it.
local function replay_ticket(requests)
  if not ticket.goes_on then return end
  local given, at = {}, 14
  while at <= #ticket.raw do
    local position, count, due, first_token
    position, count, due, first_token, at = unpick('>I2I2I6I7', ticket.raw, at)
    local ids = running_at(due)
    given[position] = given[position] or {}
    for token = first_token, first_token + count - 1 do
      if ids[token] then table.insert(given[position], {fencing_token = token, id = ids[token]}) end
    end
  end
  for _, r in ipairs(requests) do
    if r.request_id == '' and not r.goes_on and given[r.position] then replay(r, given[r.position]) end
  end
end

-- WHY a first try that gives nothing writes nothing: idle servers cost no write, and what it would overwrite is over.
local function remember_ticket(requests)
  if not ticket.name then return end
  local parts, until_ms = {''}, 0
  for _, r in ipairs(requests) do
    if r.found > 0 and r.request_id == '' and not r.replayed then
      for run = 1, #r.runs, 2 do
        local from = r.runs[run]
        local token = sub(leases[r.first + 3 * from + 1], 33, 39)
        parts[#parts + 1] = pack('>I2I2I6', r.position, (r.runs[run + 2] or r.found) - from, r.runs[run + 1]) .. token
      end
      if r.until_ms > until_ms then until_ms = r.until_ms end
    end
  end
  local is_repeat = ticket.number > ticket.first
  if #parts == 1 and not is_repeat then return end
  if is_repeat then until_ms = math.max(until_ms, now + OVERTAKEN_KNOWN_MS) end
  if ticket.goes_on then
    until_ms, parts[1] = math.max(until_ms, (unpick('>I6', ticket.raw))), sub(ticket.raw, 14)
  end
  local record = pack('>I6I7', until_ms, ticket.number) .. table.concat(parts)
  if call('HSET', K_REQUESTS, ticket.name, record) == 1 then
    call('ZADD', K_REQUEST_DUE, FAR + until_ms, ticket.name)
  end
end
