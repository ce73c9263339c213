-- dequeue/requests: decodes the requests of a Dequeue call.
-- Packed: position in the whole call(2), limit(2), goes_on(1) (1: the request continues from an earlier step), payload
-- bytes that it got there(4), lease_ms(4) (0: the message's own or the queue's), worker and request_id, each behind its
-- length(1), number of filters(1), and each filter: position of its index(1), length of its tuple(2), tuple.
-- Decoded, with what the call adds:
--   found     its leases so far; they stand in `leases` from `first` on
--   bytes     payload bytes of its leases, those of earlier calls included
--   until_ms  when the last of its leases ends
--   ended     why it ended before its limit: 0, WORK_BOUND or PAYLOAD_BOUND
--   replayed  it was answered before, by its id or under this ticket: it gets those leases and no new ones
--   twin      the earlier request of this call with the same request id
local WORK_BOUND, PAYLOAD_BOUND = 1, 2
local NO_FILTERS = {}

local function read_filters(packed, count, at)
  local filters = {}
  for i = 1, count do
    local position, tuple_bytes
    position, tuple_bytes, at = unpick('>BI2', packed, at)
    filters[i] = {index = indexes[position], tuple = sub(packed, at, at + tuple_bytes - 1)}
    at = at + tuple_bytes
  end
  return filters
end

-- RETURNS the requests, whether any has filters.
local function read_requests()
  local requests, filtered = {}, false
  for i = 7, #ARGV do
    local position, limit, goes_on, bytes, lease_ms, worker, request_id, filters, at =
      unpick('>I2I2BI4I4Bc0Bc0B', ARGV[i])
    requests[i - 6] = {position = position, limit = limit, goes_on = goes_on == 1, bytes = bytes, lease_ms = lease_ms,
      worker = worker, request_id = request_id,
      filters = filters > 0 and read_filters(ARGV[i], filters, at) or NO_FILTERS,
      found = 0, first = 0, until_ms = 0, ended = 0}
    filtered = filtered or filters > 0
  end
  return requests, filtered
end
