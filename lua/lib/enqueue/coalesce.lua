-- enqueue/coalesce: a live message stands for a new one with the same id (Q12). It takes the more urgent priority; a
-- running one is marked to run once more.
local NO_SEQUENCE = string.rep('\0', 7)

-- RETURNS outcome, enqueued_at of the live message. The caller has flushed.
local function coalesce(m, content)
  local value = exclusive and value_of(content)
  if exclusive and value ~= value_of(m.fixed) then return ID_CONFLICT, 0 end
  local urgent = before(sub(content, 1, 8) .. NO_SEQUENCE, sub(m.fixed, 1, 8) .. NO_SEQUENCE)
  local mark = m.state == RUNNING and m.flags % 2 == 0
  if urgent or mark then
    leave(m, m.state)
    if urgent then m.fixed = sub(content, 1, 8) .. sub(m.fixed, 9) end
    if mark then m.flags = m.flags + MARKED end
    enter(m, m.state, BY_COALESCE, '')
    if exclusive then reload_key(value) end
  end
  return OK, m.enqueued
end
