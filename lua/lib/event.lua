-- event: the outbox entries of this call: all its transitions, in order, up to EVENTS_MAX in an entry (Q15).
-- An entry's id is the offset of its first event and how many it has: events are numbered without gaps.
-- Layout of one event: front, id with its length, left, record, payload.
--   front   from to by version(4), then the reason with its length
--   left    when the state left was entered(6); only of a move between two states past version 2, because else the
--           record tells: it is the present state's time, or the time of the enqueue
--   record  the message's head after the transition (the last it had, where it is gone); of a message that has no
--           head: a zero byte, sequence(7), fixed
--   payload length(2) and begin of the payload, where by has WITH_PAYLOAD
-- WHY the head as it is: strings are what a script's time goes to, and this one is there already.
local EVENTS_MAX, PIECES, WITH_PAYLOAD = 64, 5, 128
local events = {}

-- The same for every message that goes the same way to the same version: hot paths make it once.
local function event_front(from, to, by, version, reason)
  return pack('>BBBI4Bc0', from, to, by, version, #reason, reason)
end

local function add_event(front, id, left, record)
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
  -- Past this nothing is kept for a sink that does not take it (docs/operations/history.md).
  if added - S[ACKED] > outbox_keep then
    call('XTRIM', K_OUTBOX, 'MINID', string.format('%.0f', added - outbox_keep))
  end
end
