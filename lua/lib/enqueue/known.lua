-- enqueue/known: the messages under the ids of an Enqueue, a part of them at a time, and what happens to an item whose id is known.
-- KNOWN_READ: ids that one command looks up. BYTES_MAX: of the messages that these have; beyond it no further ids are looked
-- up, and the call ends.
local KNOWN_READ, BYTES_MAX = 100, 4194304
local known, bytes = {}, 0
local function look_up(from)
  for i, body in ipairs(call('HMGET', K_BODY, unpack(ids, from, math.min(from + KNOWN_READ - 1, items)))) do
    known[from + i - 1] = body
    if body then bytes = bytes + #body end
  end
end

-- Item i, whose id is known. The messages gathered so far are written first: its id may be among them.
local function again(i, id, content, kind)
  flush()
  local head, body = call('HGET', K_HEAD, id), not accepted[id] and known[i]
  if not body and (not head or kind % 2 == 0) then
    body = call('HGET', K_BODY, id)
    bytes = bytes + #body
  end
  local m = head and decode_head(id, head) or decode_body(id, body)
  if kind % 2 == 0 then
    local from = kind >= 4 and 9 or 1 -- the deadline of a class is of the first call
    local stored = sub(body, 14)
    if sub(stored, from) ~= sub(content, from)
      and sub(without_trace(stored), from) ~= sub(without_trace(content), from) then
      return ID_CONFLICT, 0
    end
    return OK, m.enqueued
  end
  if m.state <= RUNNING then return coalesce(m, content) end
  local is_moved = moves(content)
  -- The message may be the last one of its value.
  if exclusive then kept[value_of(m.fixed)] = nil end
  if is_moved then
    -- The collection writes an event.
    if outbox_full then return OUTBOX_FULL, 0 end
    collect(m)
    gone[id] = true
    return MOVED, 0
  end
  -- Before the old message is collected: a refused item changes nothing.
  local refused = no_room()
  if refused then return refused, 0 end
  collect(m)
  accepted[id] = true
  return add_fresh(id, content, kind)
end
