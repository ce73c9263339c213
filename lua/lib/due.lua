-- due: the transitions that time alone causes: the end of an invisibility, the end of a lease. At most due_max of each
-- in one call, and of leases fewer where their attempts and payloads exceed DUE_BYTES_MAX.
-- move_due RETURNS whether more may be due, leases expired, messages promoted from invisible to pending, how many of the leases
-- leave an errored message.
local DUE_MANY, DUE_BYTES_MAX = 2000, 4194304
local due_max = share_of(256)

local function move_due()
  local ids, due, expired, errored = {}, {}, 0, 0
  if S[COUNT + INVISIBLE] > 0 then
    ids = call('ZRANGEBYSCORE', K_INVISIBLE, '-inf', now, 'LIMIT', 0, due_max)
    for _, id in ipairs(ids) do
      local m = load_message(id)
      leave(m, PENDING)
      m.due = 0
      enter(m, PENDING, BY_WINDOW_ELAPSED, '')
    end
  end
  if S[COUNT + RUNNING] > 0 then
    due = call('ZRANGEBYSCORE', K_RUNNING, '-inf', lease_now, 'LIMIT', 0, due_max)
    for _, id in ipairs(due) do
      if moved_bytes > DUE_BYTES_MAX then break end
      expired = expired + 1
      local m = load_message(id)
      end_run(m, ENDED_LAPSE, BY_LEASE_EXPIRED, 'lease expired')
      if m.state == ERRORED then errored = errored + 1 end
    end
  end
  -- The calling server is notified too (`*` stands for every server): it may call for the sweeper, not for its waiting
  -- callers.
  if became_ready > 0 and S[WAIT_UNTIL] > now then waiter = '*' end
  return #ids == due_max or #due == due_max or expired < #due, expired, #ids, errored
end

-- RETURNS whether too many are due to move all of them before the next lease.
local function many_due()
  return call('ZCOUNT', K_INVISIBLE, '-inf', now) + call('ZCOUNT', K_RUNNING, '-inf', lease_now) > DUE_MANY
end

-- RETURNS when the next invisibility or lease ends; 0: never.
local function next_due()
  local window = call('ZRANGE', K_INVISIBLE, 0, 0, 'WITHSCORES')[2]
  local lease = call('ZRANGE', K_RUNNING, 0, 0, 'WITHSCORES')[2]
  return math.min(tonumber(window or FAR), lease and lease + now - lease_now or FAR) % FAR
end
