-- event: writes the transitions of this call to the outbox, in order, up to EVENTS_MAX in one entry (Q15).
-- An entry's id is offset-count: the offset of its first event, and how many it has. Offsets have no gaps.
-- Layout of one event: front, id with its length, left, record, payload.
--   front   from to by version(4), then the reason with its length
--   left    when the previous state was entered(6); only after a change of state past version 2. Otherwise the record
--           has that time: since when it is in its state, or when it was enqueued
--   record  the message's head after the transition, or its last one where the message is gone; for a message without
--           head: a zero byte, sequence(7), fixed
--   payload length(2) and begin of the payload, where by has WITH_PAYLOAD; of a message that completes or is collected: its
--           result (Q23)
-- Where the queue keeps no history (outbox_keep 0), nothing is written.
-- WHY the head unchanged: building strings is what costs a script its time, and this string exists already.
-- TIMELINES_MAX: an outbox with the events of more timelines may drop its oldest events before the bound.
local EVENTS_MAX, PIECES, WITH_PAYLOAD, TIMELINES_MAX = 64, 5, 128, 16
local events = {}

-- Messages with the same transition to the same version share it: hot paths make it once.
local function event_front(from, to, by, version, reason)
  return pack('>BBBI4Bc0', from, to, by, version, #reason, reason)
end

-- The same front for an event that carries the start of the payload.
local function with_payload(front)
  return sub(front, 1, 2) .. char(byte(front, 3) + WITH_PAYLOAD) .. sub(front, 4)
end

local function add_event(front, id, left, record)
  if outbox_keep == 0 then return end
  local n = #events
  events[n + 1], events[n + 2], events[n + 3], events[n + 4], events[n + 5] = front, char(#id), id, left, record
end

local function write_events()
  local all = #events
  if all == 0 then return end
  local step, added = EVENTS_MAX * PIECES, S[ADDED]
  for i = 1, all, step do
    local last = math.min(i + step - 1, all)
    local count = (last - i + 1) / PIECES
    call('XADD', K_OUTBOX, string.format('%.0f-%d', added, count), 't', now, 'e', table.concat(events, '', i, last))
    added = added + count
  end
  S[ADDED] = added
  -- Beyond this bound the oldest events are dropped, acknowledged or not (docs/operations/history.md).
  if added - S[ACKED] > outbox_keep then
    local from, begin = added - outbox_keep, #on_timeline > 0 and unpick('>I7', on_timeline, BEGIN_AT) or 0
    for _ = 1, TIMELINES_MAX do
      if from >= begin then break end
      -- Between the events of two timelines no offsets are used (lib/timeline).
      local id = string.format('%.0f-0', begin)
      local mark = call('XRANGE', K_OUTBOX, id, id)[1]
      if not mark then break end
      local ended, earlier = unpick('>I7I7', mark[2][4], 2)
      from, begin = ended - (begin - from), earlier
    end
    if from > 0 then call('XTRIM', K_OUTBOX, 'MINID', string.format('%.0f', from)) end
  end
end
