-- check/message: a message is in the one place that its state names (I1, I4 to I9), and the counts are right (I2).
local function check_counts()
  local live = {call('ZCARD', K_INVISIBLE), call('ZCARD', K_READY) + call('ZCARD', K_BACKLOG), call('ZCARD', K_RUNNING)}
  for state = INVISIBLE, RUNNING do
    local counted = S[COUNT + state]
    expect(counted == live[state], 'I2', 'state ' .. state .. ': counted ' .. counted .. ', found ' .. live[state])
  end
  local all = 0
  for state = 1, 6 do all = all + S[COUNT + state] end
  expect(call('HLEN', K_BODY) == all, 'I2', 'counted ' .. all .. ' messages, found ' .. call('HLEN', K_BODY))
end

local function check_lock(m, member, in_ready, in_backlog)
  local key = {pcall(get_key, value_of(m.fixed))}
  local kind, rest = key[1] and key[2], key[4]
  if m.state == RUNNING then
    expect(kind == LOCKED and sub(rest, 16) == m.id, 'I4', m.id .. ': running without its lock')
  end
  if in_ready then expect(kind == FREE and rest == member, 'I5', m.id .. ': in ready, not the head of a free value') end
  if in_backlog then expect(kind, 'I5', m.id .. ': waits under a value that is not there') end
end

local function check_indexed(m, member)
  for _, index in ipairs(indexes) do
    local tuple = not index.building and tuple_of(index, metadata_of(m.fixed))
    if tuple then
      local prefix = exclusive and 'B' .. tuple .. char(#value_of(m.fixed)) .. value_of(m.fixed) or 'R' .. tuple
      local indexed = call('ZSCORE', index.order, prefix .. member) and true or false
      expect(indexed == (m.state == PENDING), 'I6', m.id .. ': state ' .. m.state .. ', wrongly indexed')
    end
  end
end

local function check_message(id)
  local m = readable(id)
  if not m then return end
  expect(call('HEXISTS', K_BODY, id) == 1, 'I7', id .. ': head without body')
  local member = member_of(m)
  local window, lease = call('ZSCORE', K_INVISIBLE, id), call('ZSCORE', K_RUNNING, id)
  local in_ready = call('ZSCORE', K_READY, member)
  local in_backlog = exclusive and call('ZSCORE', K_BACKLOG, backlog_prefix(value_of(m.fixed)) .. member)
  if exclusive then check_lock(m, member, in_ready, in_backlog) end
  local places = (window and 1 or 0) + (lease and 1 or 0) + (in_ready and 1 or 0) + (in_backlog and 1 or 0)
  local right = (m.state == INVISIBLE and window) or (m.state == RUNNING and lease)
    or (m.state == PENDING and (in_ready or in_backlog))
  expect(places == (m.state <= RUNNING and 1 or 0) and (right or m.state > RUNNING), 'I1',
    id .. ': state ' .. m.state .. ', in ' .. places .. ' places')
  if window then expect(tonumber(window) == m.due, 'I8', id .. ': due time differs') end
  if lease then expect(tonumber(lease) == m.due, 'I8', id .. ': lease expiry differs') end
  check_indexed(m, member)
end

-- The way back: an entry of ready or backlog names a pending message, one of running or invisible a message in that
-- state.
local function check_pending(member, place)
  local m = readable(sub(member, 16))
  if not m then return end
  expect(m.state == PENDING and member_of(m) == member, 'I1', m.id .. ': in ' .. place .. ', state ' .. m.state)
end

local function check_state(id, state, place)
  local m = readable(id)
  if m then expect(m.state == state, 'I1', id .. ': in ' .. place .. ', state ' .. m.state) end
end

local function check_errored(member, score)
  local m = readable(sub(member, 8))
  if not m then return end
  expect(m.state == ERRORED and m.seq == unpick('>I7', member) and m.since == tonumber(score), 'I9',
    m.id .. ': in errored, state ' .. m.state)
end
