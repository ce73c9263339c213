-- check/index: an entry of a filter index names a pending message, and its counts are right (I6).

-- RETURNS the kind of an entry (R or B, see lib/index), its tuple, its member.
local function parts_of(index, entry)
  local kind, rest, tuple = sub(entry, 1, 1), sub(entry, 2), ''
  for _ = 1, #index.names do
    local length = byte(rest)
    tuple, rest = tuple .. sub(rest, 1, length + 1), sub(rest, length + 2)
  end
  if kind == 'B' then rest = sub(rest, byte(rest) + 2) end
  return kind, tuple, rest
end

local function check_entry(index, entry)
  local kind, tuple, member = parts_of(index, entry)
  local m = readable(sub(member, 16))
  if not m then return end
  expect(m.state == PENDING and member_of(m) == member and tuple_of(index, metadata_of(m.fixed)) == tuple, 'I6',
    m.id .. ': indexed, not pending')
  if kind == 'B' then
    local value = value_of(m.fixed)
    local head = sub(first(index.order, 'B' .. tuple .. char(#value) .. value), #tuple + #value + 3)
    expect(call('ZSCORE', index.order, 'R' .. tuple .. head)
      or call('ZSCORE', K_PARKED, 'P' .. char(#value) .. value .. index.slot .. tuple), 'I6',
      m.id .. ': its head is neither ready nor parked')
  end
  local list = (exclusive and 'B' or 'R') .. tuple
  local counted = tonumber(call('HGET', index.counts, tuple .. char(PENDING)) or 0)
  -- Any byte may follow a tuple: its list ends where its values end.
  local found = call('ZLEXCOUNT', index.order, '[' .. list, '(' .. list .. string.rep('\255', 300))
  expect(counted == found, 'I6', m.id .. ': ' .. counted .. ' counted under its filter, ' .. found .. ' found')
end

local function check_index(index)
  if index.building then
    reply[2] = phase + 1
    return
  end
  walk('ZSCAN', index.order, function(entry) check_entry(index, entry) end)
end
