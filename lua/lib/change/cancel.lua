-- change/cancel: cancels one message (Q5, Q10). RETURNS code, state, version.
--@include change/revoke
local function cancel(m, fencing_token, force, reason)
  if fencing_token > 0 and ended_by(fencing_token, ENDED_CANCEL, m.ended_fencing_token, m.ended_how) then
    return OK, CANCELED, m.ended_version
  end
  if m.state == CANCELED then return OK, CANCELED, m.version end
  if m.state > RUNNING then return WRONG_STATE, m.state, 0 end
  local holds = m.state == RUNNING and fencing_token == m.fencing_token and lease_now < m.due
  if not holds and not force then
    -- A fencing token that does not hold the message belongs to a dead lease, whatever the state.
    if fencing_token > 0 then return LEASE_LOST, m.state, 0 end
    if m.state == RUNNING then return WRONG_STATE, RUNNING, 0 end
  end
  if m.state == RUNNING then
    if not holds then revoke(m) end
    moved_bytes = moved_bytes + remember_attempt(m, CANCELED, reason)
    end_lease(m, ENDED_CANCEL, CANCELED)
    if m.flags % 2 == 1 then m.flags = m.flags - MARKED end
  end
  leave(m, CANCELED)
  if reason ~= '' then m.reason = reason end
  m.due = 0
  enter(m, CANCELED, BY_CANCEL, reason)
  return OK, CANCELED, m.version
end
