-- dequeue/ticket: what the tries under this ticket have given so far, so that a repeat collects what a lost reply gave
-- (Q10; docs/decisions/0026).
-- ARGV[6] '' (no ticket), or packed: server(8) slot(1), number of the first try(7), number of this try(7)
-- Record: until(6), number of the try(7), then of each run of leases that requests without an id got: position of the first
--         request(2), number of requests(2), leases of each(2), when they end(6), fencing token of the first(7). Positions
--         and tokens follow each other. Work streams with one credit each are one run.
-- WHY no ids: only a repeat needs them, and finds them by the end of the leases. Until then no worker has
-- these leases, so none is extended.
-- After a repeat the record stays for at least this time: a late try must find that it was overtaken.
local OVERTAKEN_KNOWN_MS = 60000
local NO_RUNS = {}
local ticket = {}
if #ARGV[6] > 0 then
  ticket.name = '\0' .. sub(ARGV[6], 1, 9)
  ticket.first, ticket.number = unpick('>I7I7', ARGV[6], 10)
  ticket.raw = call('HGET', K_REQUESTS, ticket.name) or nil
  ticket.last = ticket.raw and (unpick('>I7', ticket.raw, 7)) or 0
  ticket.goes_on = ticket.last >= ticket.first
end

-- The running messages whose leases end at this time: fencing token -> id. Those of one time are read once.
-- WHY a bound: callers may choose lengths with which any number of leases end at one time. It is above what one call gives. A
-- lease that is not found ends with its time.
local RUNNING_MAX, RUNNING_READ = 4096, 1024
local running_until, running_left = {}, RUNNING_MAX
local function running_at(due)
  local ids = running_until[due]
  if not ids then
    ids = {}
    local found = call('ZRANGEBYSCORE', K_RUNNING, due, due, 'LIMIT', 0, running_left)
    running_left = running_left - #found
    for from = 1, #found, RUNNING_READ do
      local heads = call('HMGET', K_HEAD, unpack(found, from, math.min(from + RUNNING_READ - 1, #found)))
      for i, head in ipairs(heads) do ids[unpick('>I7', head, 33)] = found[from + i - 1] end
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
    local first, of_requests, count, due, token
    first, of_requests, count, due, token, at = unpick('>I2I2I2I6I7', ticket.raw, at)
    local ids = running_at(due)
    for position = first, first + of_requests - 1 do
      given[position] = given[position] or {}
      for _ = 1, count do
        if ids[token] then table.insert(given[position], {fencing_token = token, id = ids[token]}) end
        token = token + 1
      end
    end
  end
  for _, r in ipairs(requests) do
    if r.request_id == '' and not r.goes_on and given[r.position] then replay(r, given[r.position]) end
  end
end

-- RETURNS the runs of what this call has given, packed, and until when the last of the leases lives.
local function runs_given(requests)
  local packed, until_ms = {}, 0
  local first, of_requests, count, due, token = 0, 0, 0, 0, 0
  local function pack_run()
    if of_requests > 0 then packed[#packed + 1] = pack('>I2I2I2I6I7', first, of_requests, count, due, token) end
    of_requests = 0
  end
  for _, r in ipairs(requests) do
    if r.found > 0 and r.request_id == '' and not r.replayed then
      local follows = of_requests > 0 and r.position == first + of_requests and r.found == count and r.first_due == due
        and r.first_token == token + of_requests * count
      if follows and not r.runs then
        of_requests = of_requests + 1
      else
        pack_run()
        first, of_requests, count, due, token = r.position, 1, r.found, r.first_due, r.first_token
        local runs = r.runs or NO_RUNS
        for run = 1, #runs, 2 do
          count = runs[run] - (token - r.first_token)
          pack_run()
          of_requests, count, due, token = 1, r.found - runs[run], runs[run + 1], r.first_token + runs[run]
        end
        if r.runs then pack_run() end
      end
      if r.until_ms > until_ms then until_ms = r.until_ms end
    end
  end
  pack_run()
  return table.concat(packed), until_ms
end

-- WHY a first try that gives nothing writes nothing: idle servers cost no write, and what it would overwrite is over.
local function remember_ticket(requests)
  if not ticket.name then return end
  local runs, until_ms = runs_given(requests)
  local is_repeat = ticket.number > ticket.first
  if runs == '' and not is_repeat then return end
  if is_repeat then until_ms = math.max(until_ms, now + OVERTAKEN_KNOWN_MS) end
  if ticket.goes_on then
    until_ms, runs = math.max(until_ms, (unpick('>I6', ticket.raw))), sub(ticket.raw, 14) .. runs
  end
  local record = pack('>I6I7', until_ms, ticket.number) .. runs
  if call('HSET', K_REQUESTS, ticket.name, record) == 1 then
    call('ZADD', K_REQUEST_DUE, FAR + until_ms, ticket.name)
  end
end
