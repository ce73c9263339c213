#!lua flags=allow-oom
-- sweep: one bounded step of the background work (Q5): promotes messages whose invisibility has ended, ends expired
-- leases, collects terminal messages past the retention and the oldest errored ones beyond the queue's bounds, forgets
-- answered requests whose leases have ended, and ids whose window has ended.
-- KEYS all of the shard   ARGV head. RETURNS {OK, promoted, expired, errored by that, collected,
--      dropped, next_ms (0: never), now}
--@include shard
--@include record
--@include event
--@include exclusive
--@include index
--@include move
--@include due
--@include requests
--@include ids
--@include sweep/errored

local COLLECT_MAX, COLLECT_BYTES_MAX = 256, 4194304 -- the bytes: of bodies, which only remembered ids need

local _, expired, promoted, errored = move_due()
local ended_errors, dropped = collect_errored()

-- The list of terminal messages is in the order in which they ended.
local entries = call('LRANGE', K_DONE, 0, share_of(COLLECT_MAX) - 1)
local read, due_ids, bytes = 0, {}, 0
for _, entry in ipairs(entries) do
  if unpick('>I6', entry, DONE_AT) + retention_ms > now or bytes > COLLECT_BYTES_MAX then break end
  read = read + 1
  due_ids[read] = sub(entry, DONE_ID)
  if id_window_ms > 0 then bytes = bytes + call('HSTRLEN', K_BODY, due_ids[read]) end
end
local collected, gone, ended = 0, {}, {}
local front, front_version, front_state -- shared by neighbours of one state and version
if read > 0 then
  local heads = call('HMGET', K_HEAD, unpack(due_ids))
  local results = call('HMGET', K_RESULTS, unpack(due_ids))
  for i, head in ipairs(heads) do
    local id = due_ids[i]
    -- Compares with what done_entry would make, without decoding the record.
    if head and byte(head) > RUNNING
      and sub(head, 2, 11) == sub(entries[i], 1, 10) and sub(head, 52, 58) == sub(entries[i], 11, 17) then
      if byte(head) == ERRORED then
        keep_errored(decode_head(id, head)) -- version 0.1 had put it here
      else
        collected = collected + 1
        gone[collected], ended[collected] = id, unpick('>I6', entries[i], DONE_AT)
        local state, version = unpick('>BI4', head)
        if version ~= front_version or state ~= front_state then
          front_version, front_state = version, state
          front = event_front(state, GONE, BY_COLLECT, version + 1, '')
        end
        S[COUNT + state] = S[COUNT + state] - 1
        local result = state == COMPLETED and results[i]
        if result then add_event(with_payload(front), id, '', head .. pack('>I2', #result) .. result)
        else add_event(front, id, '', head) end
        if #indexes > 0 then index_move(id, sub(head, fixed_at(head)), state, GONE) end
      end
    end
  end
  if collected > 0 then
    if id_window_ms > 0 then remember_ids(gone, ended) end
    call('HDEL', K_BODY, unpack(gone))
    call('HDEL', K_HEAD, unpack(gone))
    call('HDEL', K_RESULTS, unpack(gone))
    call('HDEL', K_ATTEMPTS, unpack(gone))
  end
  call('LPOP', K_DONE, read)
  S[POPPED] = S[POPPED] + read
end
local forgets_more = forget(0, COLLECT_MAX)
forget(FAR, COLLECT_MAX)

local oldest = call('LINDEX', K_DONE, 0)
local next_ms = next_due()
if next_ms == 0 then next_ms = FAR end
local forget_ms = next_forget()
if forget_ms then next_ms = math.min(next_ms, forgets_more and now or math.max(forget_ms, now + FORGET_EVERY_MS)) end
next_ms = math.min(next_ms, next_errored(), forget_ids(COLLECT_MAX, now + FORGET_EVERY_MS) or FAR)
if oldest then next_ms = math.min(next_ms, unpick('>I6', oldest, DONE_AT) + retention_ms) end
S[SWEEP_AT], earliest_due = next_ms, FAR
write_events()
close_shard()
return {OK, promoted, expired, errored, collected + ended_errors, dropped, next_ms % FAR, now}
