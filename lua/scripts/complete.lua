#!lua flags=allow-oom
-- complete: ends leases with success (Q5, Q10, Q11, Q12, Q23).
-- KEYS all of the shard   ARGV head, number of items, then id, fencing token of each item, then position, result of each
--      item that has one
-- RETURNS {OK, code(1) state(1) version(4) of each item}
-- Where the queue forgets what is completed (lib/complete/batch), a repetition finds no message.
-- WHY a batch: completions gather and are written with one call per structure. A coalesced message, which becomes
-- pending again, acts alone.
--@include shard
--@include record
--@include event
--@include exclusive
--@include index
--@include move
--@include complete/batch

local items = tonumber(ARGV[5])
local ids, results, seen, given = {}, {}, {}, {}
for i = 1, items do ids[i] = ARGV[4 + 2 * i] end
for i = 6 + 2 * items, #ARGV, 2 do given[tonumber(ARGV[i])] = ARGV[i + 1] end
local heads = call('HMGET', K_HEAD, unpack(ids))
local FRONT = '>BI4I6I6I7BI4BI2I7' -- of a head, up to the fencing token

local function refuse(id, state)
  if state then return char(LEASE_LOST, state) .. '\0\0\0\0' end
  local missing = call('HEXISTS', K_BODY, id) == 0
  return (missing and char(NOT_FOUND, 0) or char(LEASE_LOST, PENDING)) .. '\0\0\0\0'
end

local function run_once_more(id, head)
  flush()
  local m = decode_head(id, head)
  leave(m, PENDING)
  m.flags, m.attempts, m.due = m.flags - MARKED, 0, 0
  end_lease(m, ENDED_COMPLETE, PENDING)
  enter(m, PENDING, BY_COMPLETE, '')
  return char(OK, PENDING) .. pack('>I4', m.version)
end

for i = 1, items do
  local id, fencing_token, head = ids[i], tonumber(ARGV[5 + 2 * i]), heads[i]
  if seen[id] then
    flush()
    head = call('HGET', K_HEAD, id)
  end
  seen[id] = true
  if not head then
    results[i] = refuse(id)
  else
    local state, version, _, due, ended_fencing_token, ended_how, ended_version, flags, _, held = unpick(FRONT, head)
    if state == RUNNING and held == fencing_token and lease_now < due then
      if flags % 2 == 1 then
        results[i] = run_once_more(id, head)
      else
        results[i] = complete(id, head, version + 1, given[i])
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
