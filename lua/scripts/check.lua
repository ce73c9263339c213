#!lua flags=no-writes
-- check: one bounded step of the scrubber (invariants I1 to I8 of the model).
-- ARGV head, phase, cursor. RETURNS {OK, next phase (0: done), next cursor, looked at, then invariant, detail of each violation}
-- WHY phases: every message is looked up in the place its state names, then every place is walked back to a
-- message. Each step is atomic, so messages may move between steps without a false alarm.
--@include shard
--@include record
--@include exclusive
--@include index

local phase, cursor = tonumber(ARGV[5]), ARGV[6]
local STEP, KEY_BYTES_MIN = 100, 4 + 15 + 1
local reply = {OK, 0, '', 0}
local function violated(invariant, detail)
  reply[#reply + 1], reply[#reply + 2] = invariant, detail
end
local function expect(holds, invariant, detail)
  if not holds then violated(invariant, detail) end
end
-- Walks one structure page by page; the callback gets one entry (and its score or value).
local function walk(command, key, visit)
  local page = call(command, key, cursor == '' and '0' or cursor, 'COUNT', STEP)
  for i = 1, #page[2], 2 do visit(page[2][i], page[2][i + 1]) end
  reply[4] = math.floor(#page[2] / 2)
  if page[1] == '0' then reply[2], reply[3] = phase + 1, '' else reply[2], reply[3] = phase, page[1] end
end
local function readable(id)
  local ok, m = pcall(load_message, id)
  expect(ok and m, 'I7', id .. ': no readable record')
  return ok and m or nil
end

local function check_counts()
  local live = {call('ZCARD', K_INVISIBLE), call('ZCARD', K_READY) + call('ZCARD', K_BACKLOG), call('ZCARD', K_RUNNING)}
  for state = INVISIBLE, RUNNING do
    expect(S[COUNT + state] == live[state], 'I2', 'state ' .. state .. ': counted ' .. S[COUNT + state] .. ', found ' .. live[state])
  end
  local all = 0
  for state = 1, 6 do all = all + S[COUNT + state] end
  expect(call('HLEN', K_BODY) == all, 'I2', 'counted ' .. all .. ' messages, found ' .. call('HLEN', K_BODY))
end

local function check_message(id)
  local m = readable(id)
  if not m then return end
  expect(call('HEXISTS', K_BODY, id) == 1, 'I7', id .. ': head without body')
  local member = member_of(m)
  local window, lease = call('ZSCORE', K_INVISIBLE, id), call('ZSCORE', K_RUNNING, id)
  local waits = call('ZSCORE', K_READY, member)
  local behind, kind, rest
  if exclusive then
    local value = value_of(m.fixed)
    behind = call('ZSCORE', K_BACKLOG, backlog_prefix(value) .. member)
    local key = {pcall(get_key, value)}
    kind, rest = key[1] and key[2], key[4]
    if m.state == RUNNING then expect(kind == LOCKED and sub(rest, 16) == id, 'I4', id .. ': running without its lock') end
    if waits then expect(kind == FREE and rest == member, 'I5', id .. ': in ready, not the head of a free value') end
    if behind then expect(kind, 'I5', id .. ': waits under a value that is not there') end
  end
  local places = (window and 1 or 0) + (lease and 1 or 0) + (waits and 1 or 0) + (behind and 1 or 0)
  local right = (m.state == INVISIBLE and window) or (m.state == RUNNING and lease) or (m.state == PENDING and (waits or behind))
  expect(places == (m.state <= RUNNING and 1 or 0) and (right or m.state > RUNNING), 'I1', id .. ': state ' .. m.state .. ', in ' .. places .. ' places')
  if window then expect(tonumber(window) == m.due, 'I8', id .. ': due time differs') end
  if lease then expect(tonumber(lease) == m.due, 'I8', id .. ': lease expiry differs') end
  for _, index in ipairs(indexes) do
    local tuple = not index.building and tuple_of(index, metadata_of(m.fixed))
    if tuple then
      local prefix = exclusive and 'B' .. tuple .. char(#value_of(m.fixed)) .. value_of(m.fixed) or 'R' .. tuple
      local indexed = call('ZSCORE', index.order, prefix .. member)
      expect((indexed and true or false) == (m.state == PENDING), 'I6', id .. ': state ' .. m.state .. ', wrongly indexed')
    end
  end
end

local function check_key(value, raw)
  if #raw < KEY_BYTES_MIN then return violated('I4', value .. ': unreadable') end
  local waiting, member, prefix = unpick('>I4', raw), sub(raw, 5), backlog_prefix(value)
  local found = call('ZLEXCOUNT', K_BACKLOG, '[' .. prefix, '(' .. prefix .. PAST)
  expect(found == waiting, 'I5', value .. ': ' .. waiting .. ' said to wait, ' .. found .. ' do')
  local m = readable(sub(member, 16))
  if call('ZSCORE', K_READY, member) then
    local behind = first(K_BACKLOG, prefix)
    if behind then expect(before(member, sub(behind, #prefix + 1)), 'I5', value .. ': a more urgent message waits behind its head') end
  elseif m then
    expect(m.state ~= PENDING, 'I5', value .. ': its head is not in ready')
    expect(m.state == PENDING or m.state == RUNNING and value_of(m.fixed) == value, 'I4', value .. ': locked by ' .. m.id .. ', which does not run')
  end
end

local function check_index(at)
  local index = indexes[at]
  if index.building then reply[2] = phase + 1 return end
  walk('ZSCAN', index.order, function(entry)
    local kind, rest = sub(entry, 1, 1), sub(entry, 2)
    local tuple = ''
    for _ = 1, #index.names do
      local length = byte(rest)
      tuple, rest = tuple .. sub(rest, 1, length + 1), sub(rest, length + 2)
    end
    if kind == 'B' then rest = sub(rest, byte(rest) + 2) end
    local m = readable(sub(rest, 16))
    if not m then return end
    expect(m.state == PENDING and member_of(m) == rest and tuple_of(index, metadata_of(m.fixed)) == tuple, 'I6', m.id .. ': indexed, not pending')
    if kind == 'B' then
      local value = value_of(m.fixed)
      local head = sub(first(index.order, 'B' .. tuple .. char(#value) .. value), #tuple + #value + 3)
      expect(call('ZSCORE', index.order, 'R' .. tuple .. head)
        or call('ZSCORE', K_PARKED, 'P' .. char(#value) .. value .. index.slot .. tuple), 'I6', m.id .. ': its head is neither ready nor parked')
    end
    local list = (exclusive and 'B' or 'R') .. tuple
    local counted = tonumber(call('HGET', index.counts, tuple .. char(PENDING)) or 0)
    -- The list of a tuple ends where its values do: any next byte may follow.
    local found = call('ZLEXCOUNT', index.order, '[' .. list, '(' .. list .. string.rep('\255', 300))
    expect(counted == found, 'I6', m.id .. ': ' .. counted .. ' counted under its filter, ' .. found .. ' found')
  end)
end

check_counts()
if phase == 0 then walk('HSCAN', K_BODY, check_message)
elseif phase == 1 then walk('HSCAN', K_HEAD, check_message)
elseif phase == 2 then
  walk('ZSCAN', K_READY, function(member)
    local m = readable(sub(member, 16))
    if m then expect(m.state == PENDING and member_of(m) == member, 'I1', m.id .. ': in ready, state ' .. m.state) end
  end)
elseif phase == 3 then
  walk('ZSCAN', K_BACKLOG, function(entry)
    local member = sub(entry, 2 + byte(entry))
    local m = readable(sub(member, 16))
    if m then expect(m.state == PENDING and member_of(m) == member, 'I1', m.id .. ': in backlog, state ' .. m.state) end
  end)
elseif phase == 4 then
  walk('ZSCAN', K_RUNNING, function(id)
    local m = readable(id)
    if m then expect(m.state == RUNNING, 'I1', id .. ': in running, state ' .. m.state) end
  end)
elseif phase == 5 then
  walk('ZSCAN', K_INVISIBLE, function(id)
    local m = readable(id)
    if m then expect(m.state == INVISIBLE, 'I1', id .. ': in invisible, state ' .. m.state) end
  end)
elseif phase == 6 then walk('HSCAN', K_KEYS, check_key)
elseif phase - 7 < #indexes then check_index(phase - 6)
end
if reply[2] > 6 + #indexes then reply[2] = 0 end
return reply
