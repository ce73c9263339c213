-- due: what time alone does: windows that elapse, leases that run out. At most DUE_MAX of each.
-- move_due RETURNS whether there may be more, leases expired, messages made pending by their window.
local DUE_MAX = 256

local function move_due()
  local ids, expired = {}, {}
  if S[COUNT + INVISIBLE] > 0 then
    ids = call('ZRANGEBYSCORE', K_INVISIBLE, '-inf', now, 'LIMIT', 0, DUE_MAX)
    for _, id in ipairs(ids) do
      local m = load_message(id)
      leave(m, PENDING)
      m.due = 0
      enter(m, PENDING, BY_WINDOW_ELAPSED, '')
    end
  end
  if S[COUNT + RUNNING] > 0 then
    expired = call('ZRANGEBYSCORE', K_RUNNING, '-inf', now, 'LIMIT', 0, DUE_MAX)
    for _, id in ipairs(expired) do
      end_run(load_message(id), ENDED_LAPSE, BY_LEASE_EXPIRED, 'lease expired')
    end
  end
  -- Who is told by the clock must be told: the server that calls may act for others than those who wait on it.
  if became_ready > 0 and S[WAIT_UNTIL] > now then waiter = '*' end
  return #ids == DUE_MAX or #expired == DUE_MAX, #expired, #ids
end

-- When the next window elapses or lease runs out; 0: none will.
local function next_due()
  local window = call('ZRANGE', K_INVISIBLE, 0, 0, 'WITHSCORES')[2]
  local lease = call('ZRANGE', K_RUNNING, 0, 0, 'WITHSCORES')[2]
  return math.min(tonumber(window or FAR), tonumber(lease or FAR)) % FAR
end
