-- event: the outbox entries of this call: all its transitions, in order, up to EVENTS_MAX in an entry (Q15).
-- WHY a bound: the outbox is trimmed by entries, so its memory is bounded only if theirs is.
-- Layout of one event: from to by version(4) sequence(7) fence(7) attempts(2) due(6), then id, worker and
-- reason, each with its length, then fixed (which knows its own length).
local EVENTS_MAX = 64
local events = {}

local function add_event(from, to, by, m, reason)
  local due = (to == INVISIBLE or to == RUNNING) and m.due or 0
  events[#events + 1] = pack('>BBBI4I7I7I2I6', from, to, by, m.version, m.seq, m.fence, m.attempts, due)
    .. char(#m.id) .. m.id .. char(#m.worker) .. m.worker .. char(#reason) .. reason .. m.fixed
end

local function write_events()
  for i = 1, #events, EVENTS_MAX do
    local entry = table.concat(events, '', i, math.min(i + EVENTS_MAX - 1, #events))
    call('XADD', K_OUTBOX, 'MAXLEN', '~', outbox_max, '*', 't', now, 'e', entry)
  end
end
