-- change/redrive: makes one errored or canceled message pending again, with all its attempts (Q5).
-- RETURNS code, state, version.
local function redrive(m)
  if m.state == PENDING and m.flags >= REDRIVEN then return OK, PENDING, m.version end
  if m.state ~= ERRORED and m.state ~= CANCELED then return WRONG_STATE, m.state, 0 end
  local live = S[COUNT + INVISIBLE] + S[COUNT + PENDING] + S[COUNT + RUNNING]
  if max_depth > 0 and live >= max_depth then return QUEUE_FULL, m.state, 0 end
  leave(m, PENDING)
  m.attempts, m.flags = 0, m.flags % REDRIVEN + REDRIVEN
  enter(m, PENDING, BY_REDRIVE, '')
  return OK, PENDING, m.version
end
