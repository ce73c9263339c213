#!lua flags=allow-oom
-- update_message: changes priority and visibility in one write (Q7).
-- KEYS all of the shard   ARGV head, id, priority (8 bytes; '': unchanged), visible_at_ms (-1: unchanged)
-- RETURNS {OK, code(1) state(1) version(4)}
--@include shard
--@include record
--@include event
--@include exclusive
--@include index
--@include move

local function update(m, priority, visible_at_ms)
  if m.state > RUNNING or (m.state == RUNNING and visible_at_ms >= 0) then return WRONG_STATE, m.state, 0 end
  local to, due = m.state, m.due
  if visible_at_ms > now then to, due = INVISIBLE, visible_at_ms
  elseif visible_at_ms >= 0 then to, due = PENDING, 0 end
  local other_priority = priority ~= '' and priority ~= sub(m.fixed, 1, 8)
  if to ~= m.state or due ~= m.due or other_priority then
    leave(m, to)
    m.due = due
    if other_priority then m.fixed = priority .. sub(m.fixed, 9) end
    enter(m, to, BY_UPDATE_MESSAGE, '')
  end
  return OK, m.state, m.version
end

local m = load_message(ARGV[5])
local code, state, version = NOT_FOUND, 0, 0
if m then code, state, version = update(m, ARGV[6], tonumber(ARGV[7])) end
write_events()
close_shard()
return {OK, char(code, state) .. pack('>I4', version)}
