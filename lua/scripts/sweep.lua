#!lua flags=allow-oom
-- sweep: one bounded step of the background work: due windows, expired leases, terminal messages past the
-- retention, answered requests whose leases are over (Q5).
-- ARGV head. RETURNS {OK, promoted, expired, collected, next_ms (0: none), now}
--@include shard
--@include record
--@include event
--@include exclusive
--@include index
--@include move
--@include due
--@include requests

local COLLECT_MAX = 256

local _, expired, promoted = move_due()

-- The list of ended messages is in order of time.
local entries = call('LRANGE', K_DONE, 0, COLLECT_MAX - 1)
local looked_at, due_ids = 0, {}
for _, entry in ipairs(entries) do
  if unpick('>I6', entry) + retention_ms > now then break end
  looked_at = looked_at + 1
  due_ids[looked_at] = sub(entry, DONE_ID)
end
local collected, gone = 0, {}
if looked_at > 0 then
  local heads = call('HMGET', K_HEAD, unpack(due_ids))
  for i, head in ipairs(heads) do
    local m = head and decode_head(due_ids[i], head)
    if m and m.state > RUNNING and done_entry(m) == entries[i] then
      collected = collected + 1
      gone[collected] = m.id
      S[COUNT + m.state] = S[COUNT + m.state] - 1
      m.version = m.version + 1
      add_event(m.state, GONE, BY_COLLECT, m, '')
      if #indexes > 0 then index_move(m.id, m.fixed, m.state, GONE) end
    end
  end
  if collected > 0 then
    call('HDEL', K_BODY, unpack(gone))
    call('HDEL', K_HEAD, unpack(gone))
  end
  call('LPOP', K_DONE, looked_at)
  S[POPPED] = S[POPPED] + looked_at
end
forget_requests(COLLECT_MAX)

local oldest = call('LINDEX', K_DONE, 0)
local next_ms = next_due()
if next_ms == 0 then next_ms = FAR end
if oldest then next_ms = math.min(next_ms, unpick('>I6', oldest) + retention_ms) end
S[SWEEP_AT], earliest_due = next_ms, FAR
write_events()
close_shard()
return {OK, promoted, expired, collected, next_ms % FAR, now}
