-- event: the outbox entries of this call: all its transitions, in order, up to EVENTS_MAX in an entry (Q15).
-- WHY a bound: the outbox is trimmed by entries, so its memory is bounded only if theirs is.
-- Layout of one event: front, id with its length, record.
--   front   from to by version(4), then the reason with its length
--   record  the message's head after the transition (the last it had, where it is gone); of a message that has no
--           head: a zero byte, sequence(7), fixed
-- WHY the head as it is: strings are what a script's time goes to, and this one is there already.
local EVENTS_MAX, PIECES = 64, 4
local events = {}

-- The same for every message that goes the same way to the same version: hot paths make it once.
local function event_front(from, to, by, version, reason)
  return pack('>BBBI4Bc0', from, to, by, version, #reason, reason)
end

local function add_event(front, id, record)
  local n = #events
  events[n + 1], events[n + 2], events[n + 3], events[n + 4] = front, char(#id), id, record
end

local function write_events()
  local step = EVENTS_MAX * PIECES
  for i = 1, #events, step do
    local entry = table.concat(events, '', i, math.min(i + step - 1, #events))
    call('XADD', K_OUTBOX, 'MAXLEN', '~', outbox_max, '*', 't', now, 'e', entry)
  end
end
