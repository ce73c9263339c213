#!lua flags=allow-oom
-- complete: end leases with success (Q5, Q10, Q11, Q12).
-- ARGV head, then id, fencing token of each item. RETURNS {OK, code(1) state(1) version(4) of each}
--@include shard
--@include record
--@include event
--@include exclusive
--@include index
--@include move

local items = (#ARGV - 4) / 2
local ids, results = {}, {}
for i = 1, items do ids[i] = ARGV[3 + 2 * i] end
local heads = call('HMGET', K_HEAD, unpack(ids))

local FRONT = '>BI4I6I6I7BI4BI2I7'
local ended, new_heads, done, values, seen = {}, {}, {}, {}, {}
local now6 = pack('>I6', now)

local function refuse(id, state)
  if state then return char(LEASE_LOST, state) .. '\0\0\0\0' end
  local missing = call('HEXISTS', K_BODY, id) == 0
  return (missing and char(NOT_FOUND, 0) or char(LEASE_LOST, PENDING)) .. '\0\0\0\0'
end

local function flush()
  if #ended == 0 then return end
  call('ZREM', K_RUNNING, unpack(ended))
  call('HSET', K_HEAD, unpack(new_heads))
  call('RPUSH', K_DONE, unpack(done))
  note_due(now + retention_ms)
  S[COUNT + RUNNING], S[COUNT + COMPLETED] = S[COUNT + RUNNING] - #ended, S[COUNT + COMPLETED] + #ended
  if exclusive then
    -- What unlock_key does to one value, for all of them with one call per structure.
    local raws = call('HMGET', K_KEYS, unpack(values))
    local gone, sets, promoted, ready, promotions = {}, {}, {}, {}, 0
    for i, raw in ipairs(raws) do
      local value = values[i]
      local waiting = unpick('>I4', raw)
      if waiting == 0 then gone[#gone + 1] = value
      else
        local prefix = backlog_prefix(value)
        -- As `first`, which need not be told where to stop: there is one.
        local entry = call('ZRANGEBYLEX', K_BACKLOG, '[' .. prefix, '+', 'LIMIT', '0', '1')[1]
        local member = sub(entry, #prefix + 1)
        local n = promotions + 1
        promoted[n], ready[2 * n - 1], ready[2 * n] = entry, '0', member
        sets[2 * n - 1], sets[2 * n] = value, pack('>I4', waiting - 1) .. member
        promotions = n
      end
    end
    if #gone > 0 then call('HDEL', K_KEYS, unpack(gone)) end
    if promotions > 0 then
      call('ZREM', K_BACKLOG, unpack(promoted))
      call('ZADD', K_READY, unpack(ready))
      call('HSET', K_KEYS, unpack(sets))
      became_ready = became_ready + promotions
    end
    if S[PARKED] > 0 then
      for _, value in ipairs(values) do restore_parked(value) end
    end
  end
  ended, new_heads, done, values = {}, {}, {}, {}
end

-- What completions to one version have in common; most messages have the same.
local shared_version, version4, head_front, head_middle, front, completed
local function share(version)
  shared_version, version4 = version, pack('>I4', version)
  head_front = char(COMPLETED) .. version4 .. now6 .. '\0\0\0\0\0\0'
  head_middle = char(ENDED_COMPLETE + COMPLETED) .. version4
  front = event_front(RUNNING, COMPLETED, BY_COMPLETE, version, '')
  completed = char(OK, COMPLETED) .. version4
end

for i = 1, items do
  local id, fencing_token, head = ids[i], tonumber(ARGV[4 + 2 * i]), heads[i]
  if seen[id] then
    flush()
    head = call('HGET', K_HEAD, id)
  end
  seen[id] = true
  if not head then
    results[i] = refuse(id)
  else
    local state, version, _, due, ended_fencing_token, ended_how, ended_version, flags, attempts, held = unpick(FRONT, head)
    if state == RUNNING and held == fencing_token and now < due then
      version = version + 1
      if flags % 2 == 1 then
        flush()
        local m = decode_head(id, head)
        leave(m, PENDING)
        m.flags, m.attempts, m.due = m.flags - MARKED, 0, 0
        end_lease(m, ENDED_COMPLETE, PENDING)
        enter(m, PENDING, BY_COMPLETE, '')
        results[i] = char(OK, PENDING) .. pack('>I4', version)
      else
        -- The same bytes as encode_head would make, without taking the record apart.
        if version ~= shared_version then share(version) end
        local new_head = head_front .. sub(head, 33, 39) .. head_middle .. sub(head, 30)
        local n = #ended + 1
        ended[n], new_heads[2 * n - 1], new_heads[2 * n] = id, id, new_head
        done[n] = version4 .. now6 .. sub(head, 52, 58) .. id
        add_event(front, id, sub(head, 6, 11), new_head)
        if exclusive then values[n] = value_at(head, fixed_at(head)) end
        if #indexes > 0 then index_move(id, sub(head, fixed_at(head)), RUNNING, COMPLETED) end
        results[i] = completed
      end
    elseif ended_by(fencing_token, ENDED_COMPLETE, ended_fencing_token, ended_how) then
      results[i] = char(OK, ended_how % 16) .. pack('>I4', ended_version)
    else
      results[i] = refuse(id, state)
    end
  end
end
flush()
write_events()
close_shard()
return {OK, table.concat(results)}
