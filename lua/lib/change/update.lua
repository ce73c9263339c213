-- change/update: changes priority and visibility of one message in one write (Q7). `priority`: 8 bytes; '': unchanged.
-- `visible_at_ms` -1: unchanged.

-- RETURNS the state and due time that the message gets; nil: the update changes nothing.
local function updated(m, priority, visible_at_ms)
  local to, due = m.state, m.due
  if visible_at_ms > now then to, due = INVISIBLE, visible_at_ms
  elseif visible_at_ms >= 0 then to, due = PENDING, 0 end
  if to ~= m.state or due ~= m.due or (priority ~= '' and priority ~= sub(m.fixed, 1, 8)) then return to, due end
end

-- RETURNS code, state, version.
local function update(m, priority, visible_at_ms)
  if m.state > RUNNING or (m.state == RUNNING and visible_at_ms >= 0) then return WRONG_STATE, m.state, 0 end
  local to, due = updated(m, priority, visible_at_ms)
  if to then
    leave(m, to)
    m.due = due
    if priority ~= '' then m.fixed = priority .. sub(m.fixed, 9) end
    enter(m, to, BY_UPDATE_MESSAGE, '')
  end
  return OK, m.state, m.version
end
