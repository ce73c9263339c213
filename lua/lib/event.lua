-- event: the outbox entry of this call: one entry for all its transitions, in order (Q15).
-- Layout of one event: from to by version(4) sequence(7) fence(7) attempts(2) due(6), then id, worker and
-- reason, each with its length, then fixed (which knows its own length).
local events = {}

local function add_event(from, to, by, m, reason)
  local due = (to == INVISIBLE or to == RUNNING) and m.due or 0
  events[#events + 1] = pack('>BBBI4I7I7I2I6', from, to, by, m.version, m.seq, m.fence, m.attempts, due)
    .. char(#m.id) .. m.id .. char(#m.worker) .. m.worker .. char(#reason) .. reason .. m.fixed
end

local function write_events()
  if #events > 0 then
    call('XADD', K_OUTBOX, 'MAXLEN', '~', outbox_max, '*', 't', now, 'e', table.concat(events))
  end
end
