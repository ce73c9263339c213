-- dequeue/leases: the leases of this call, and the repetition of answered requests (Q10).
-- IDS_READ: remembered requests that one command reads. FIND_BYTES: to find the first message under a filter takes Redis as
-- long as so many bytes of a body.
local BYTES_MAX, IDS_READ, FIND_BYTES = 4194304, 4, 3072
local leases_max = share_of(2048)
-- id, head, body of every lease. Those of one request are neighbours, from r.first on. bytes_read: of bodies.
local leases, leases_end, bytes_read = {}, 0, 0

-- Whether this call has given or read what one call may (X5): requests that are left continue in the next.
local function is_full()
  return bytes_read > BYTES_MAX or leases_end >= 3 * leases_max
end

-- Leases of one request that end at the same time are a run. The first one is in the request itself; of each further one
-- `runs` has the position of its first lease and the time (ms).
local function begin_run(r, due, token)
  if r.found == 0 then
    r.first_due, r.first_token = due, token
  else
    r.runs = r.runs or {}
    local n = #r.runs
    r.runs[n + 1], r.runs[n + 2] = r.found, due
  end
  r.run_due = due
  if due > r.until_ms then r.until_ms = due end
end

-- `token`: the fencing token of a new lease. Those of one request follow each other.
local function give(r, id, head, body, due, payload_bytes, token)
  if r.found == 0 then r.first = leases_end + 1 end
  if due ~= r.run_due then begin_run(r, due, token) end
  leases[leases_end + 1], leases[leases_end + 2], leases[leases_end + 3] = id, head, body
  leases_end = leases_end + 3
  r.found = r.found + 1
  bytes_read, r.bytes = bytes_read + #body, r.bytes + payload_bytes
end

-- Gives a request those of its remembered leases that still live.
local function replay(r, given)
  for _, lease in ipairs(given) do
    local head, ends = living(lease.id, lease.fencing_token)
    if head and lease_now < ends then give(r, lease.id, head, call('HGET', K_BODY, lease.id), 0, 0) end
  end
  r.replayed = r.found > 0
end

-- Replays every request whose id was answered before, and links twins.
local function replay_answered(requests)
  local with_id, ids, latest = {}, {}, {}
  for _, r in ipairs(requests) do
    if r.request_id ~= '' and not r.goes_on then
      with_id[#with_id + 1], ids[#ids + 1] = r, r.request_id
      r.twin, latest[r.request_id] = latest[r.request_id], r
    end
  end
  if #ids == 0 then return end
  local raws, from
  for i, r in ipairs(with_id) do
    if i % IDS_READ == 1 then
      raws, from = is_full() and {} or call('HMGET', K_REQUESTS, unpack(ids, i, math.min(i + IDS_READ - 1, #ids))), i
    end
    -- Then it is not known whether the others are remembered.
    if is_full() then r.ended, r.limit = WORK_BOUND, 0
    elseif raws[i - from + 1] then replay(r, remembered(raws[i - from + 1])) end
  end
  forget(0, 2 * #ids)
end
