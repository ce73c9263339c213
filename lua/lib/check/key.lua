-- check/key: an entry of keys names the head of a free value or the running message of a locked one (I4, I5).
local KEY_BYTES_MIN = 4 + 15 + 1

local function check_key(value, raw)
  if #raw < KEY_BYTES_MIN then return violated('I4', value .. ': unreadable') end
  local waiting, member, prefix = unpick('>I4', raw), sub(raw, 5), backlog_prefix(value)
  local found = call('ZLEXCOUNT', K_BACKLOG, '[' .. prefix, '(' .. prefix .. PAST)
  expect(found == waiting, 'I5', value .. ': ' .. waiting .. ' said to wait, ' .. found .. ' do')
  local m = readable(sub(member, 16))
  if call('ZSCORE', K_READY, member) then
    local behind = first(K_BACKLOG, prefix)
    if behind then
      expect(before(member, sub(behind, #prefix + 1)), 'I5', value .. ': a more urgent message waits behind its head')
    end
  elseif m then
    expect(m.state ~= PENDING, 'I5', value .. ': its head is not in ready')
    expect(m.state == PENDING or m.state == RUNNING and value_of(m.fixed) == value, 'I4',
      value .. ': locked by ' .. m.id .. ', which does not run')
  end
end
