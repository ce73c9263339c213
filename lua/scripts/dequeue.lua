#!lua flags=allow-oom
-- dequeue: leases the most urgent runnable messages, for several requests in one call (Q4, Q8, Q10, Q11).
-- KEYS all of the shard   ARGV head, wait (1: callers may wait on this server after the call), ticket
--      (lib/dequeue/ticket), then each request packed (lib/dequeue/requests)
-- RETURNS {OK, leases expired, errored by that, now, ready, next_due (0: none), of a queue with several shards the priority of the most
--      urgent ready message ('': none), then of each request: number of leases, why it ended before its limit
--      (0: nothing is left for it, WORK_BOUND: call again, PAYLOAD_BOUND), and id, head, body of each lease}
--      | {AGAIN, leases expired, errored by that}: the call did bounded background work and leased nothing; more such work is due
--      | {OVERTAKEN}: a later try of this slot came first; nothing was done
-- WHY the due work first: a message whose invisibility or lease has ended competes with the pending ones. WHY not all of it where
-- more than DUE_MANY are due: callers get what is runnable meanwhile. Only a caller that got too few calls again.
--@include shard
--@include record
--@include event
--@include exclusive
--@include index
--@include move
--@include due
--@include requests
--@include dequeue/requests
--@include dequeue/leases
--@include dequeue/ticket
--@include dequeue/ready
--@include dequeue/filtered
--@include dequeue/reply

local expired, errored = 0, 0

local function again()
  write_events()
  close_shard()
  return {AGAIN, expired, errored}
end

if ticket.name and ticket.last > ticket.number then return {OVERTAKEN} end
local more, _
more, expired, _, errored = move_due()
if more and not many_due() then return again() end
local requests, filtered = read_requests()
if filtered and restore_rest() then return again() end
replay_ticket(requests)
replay_answered(requests)

-- Requests act in order; neighbours without filters share one pass over ready. A `twin`, a retry that came in one call
-- with its original, gets the same leases.
local i = 1
while i <= #requests do
  local r = requests[i]
  if not r.replayed and r.twin and r.twin.found > 0 then
    r.first, r.found, r.replayed = r.twin.first, r.twin.found, true
  end
  if r.replayed then
    i = i + 1
  elseif #r.filters > 0 then
    lease_filtered(r)
    i = i + 1
  else
    local from, wanted = i, 0
    repeat
      wanted = wanted + r.limit
      i = i + 1
      r = requests[i]
    until not r or r.replayed or r.twin or #r.filters > 0
    lease_ready(requests, from, i - 1, wanted)
  end
end
if more then
  for _, r in ipairs(requests) do
    if r.found < r.limit and r.ended == 0 and not r.replayed then r.ended = WORK_BOUND end
  end
end

remember_requests(requests)
remember_ticket(requests)
if ARGV[5] == '1' then mark_waiting() end
write_events()
close_shard()
return reply_of(requests, expired, errored)
