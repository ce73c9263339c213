-- change/revoke: the worker of a running message does not know that its lease ends: the server of its Work stream notifies
-- it (Q23).
local function revoke(m)
  call('PUBLISH', WAKE_CHANNEL, K_STATE .. string.format(' %.0f ', m.fencing_token) .. m.id)
end
