-- complete/batch: completions gather, and flush writes them with one call per structure. Where the queue forgets them
-- (docs/decisions/0048) they are collected in the same step.
local forgets = byte(ARGV[3]) % 4 >= 2
local ended, new_heads, done, values = {}, {}, {}, {}
local now6 = pack('>I6', now)

-- What unlock_key does for one value, for all values of the batch.
local function unlock_keys()
  local gone, sets, promoted, ready, n = {}, {}, {}, {}, 0
  for i, raw in ipairs(call('HMGET', K_KEYS, unpack(values))) do
    local value = values[i]
    local waiting = unpick('>I4', raw)
    if waiting == 0 then gone[#gone + 1] = value
    else
      local prefix = backlog_prefix(value)
      -- As `first`, without an upper bound: a message does wait, so the first entry has this prefix.
      local entry = call('ZRANGEBYLEX', K_BACKLOG, '[' .. prefix, '+', 'LIMIT', '0', '1')[1]
      local member = sub(entry, #prefix + 1)
      n = n + 1
      promoted[n], ready[2 * n - 1], ready[2 * n] = entry, '0', member
      sets[2 * n - 1], sets[2 * n] = value, pack('>I4', waiting - 1) .. member
    end
  end
  if #gone > 0 then call('HDEL', K_KEYS, unpack(gone)) end
  if n > 0 then
    call('ZREM', K_BACKLOG, unpack(promoted))
    call('ZADD', K_READY, unpack(ready))
    call('HSET', K_KEYS, unpack(sets))
    became_ready = became_ready + n
  end
  if S[PARKED] > 0 then
    for _, value in ipairs(values) do restore_parked(value) end
  end
end

local function flush()
  if #ended == 0 then return end
  call('ZREM', K_RUNNING, unpack(ended))
  S[COUNT + RUNNING] = S[COUNT + RUNNING] - #ended
  if forgets then
    call('HDEL', K_BODY, unpack(ended))
    call('HDEL', K_HEAD, unpack(ended))
    call('HDEL', K_ATTEMPTS, unpack(ended))
  else
    call('HSET', K_HEAD, unpack(new_heads))
    call('RPUSH', K_DONE, unpack(done))
    note_due(now + retention_ms)
    S[COUNT + COMPLETED] = S[COUNT + COMPLETED] + #ended
  end
  if exclusive then unlock_keys() end
  ended, new_heads, done, values = {}, {}, {}, {}
end

-- The bytes that completions to one version share: most messages have the same version.
local shared_version, version4, head_front, head_middle, front, completed, collected
local function share(version)
  shared_version, version4 = version, pack('>I4', version)
  head_front = char(COMPLETED) .. version4 .. now6
  head_middle = char(ENDED_COMPLETE + COMPLETED) .. version4
  front = event_front(RUNNING, COMPLETED, BY_COMPLETE, version, '')
  completed = char(OK, COMPLETED) .. version4
  collected = event_front(COMPLETED, GONE, BY_COLLECT, version + 1, '')
end

-- Adds one to the batch. `result`: what the worker gave; nil: nothing. RETURNS the result of its item.
local function complete(id, head, version, result)
  -- The bytes that encode_head would make, without decoding the record. `due` becomes the start of the run.
  if version ~= shared_version then share(version) end
  local new_head = head_front .. sub(head, 6, 11) .. sub(head, 33, 39) .. head_middle .. sub(head, 30)
  local n = #ended + 1
  ended[n] = id
  if result and not forgets then
    call('HSET', K_RESULTS, id, result)
    add_event(with_payload(front), id, sub(head, 6, 11), new_head .. pack('>I2', #result) .. result)
  else
    add_event(front, id, sub(head, 6, 11), new_head)
  end
  if forgets then
    add_event(collected, id, '', new_head)
  else
    new_heads[2 * n - 1], new_heads[2 * n] = id, new_head
    done[n] = version4 .. now6 .. sub(head, 52, 58) .. id
  end
  if exclusive then values[n] = value_at(head, fixed_at(head)) end
  if #indexes > 0 then
    index_move(id, sub(head, fixed_at(head)), RUNNING, forgets and GONE or COMPLETED)
  end
  return completed
end
