#!lua flags=allow-oom
-- settle: windows that a rollup has committed are no longer pending; a counter with nothing newer is not dirty (N8, N9).
-- KEYS state pending dirty layout counts names
-- ARGV now_ms revision due_after_ms is_archived (counter settled_to_ms closed again_after_ms)...
-- is_archived: '1': the counters' names are kept for the archive, because records have only their hashes (N15)
-- closed: what the committed count requires (0, CLOSED_UP or CLOSED_DOWN), unless a later rollup has decided already
-- again_after_ms: a counter in circulation falls due again after this (N10); 0: it leaves circulation; below 0: it was
-- deleted, and leaves circulation unless a later rollup has counted an add since (N14)
-- RETURNS {OK}
-- WHY closed is set here and not by a call before: a counter opened before it is settled would take adds that do not fit
-- a count which holds the same deltas already.
-- WHY only the last word takes a counter out: a recount since then has its count published by a later rollup (recount). A time
-- that is yet to come was written under a wrong clock.
-- WHY a counter that this call closes is due again: a later rollup may have opened it and left no record, because
-- nothing was pending. The next rollup decides.
--@include shard
--@include pending
local due_after_ms = tonumber(ARGV[3])
local counters = {}
for i = 5, #ARGV, 4 do counters[#counters + 1] = ARGV[i] end
local raws = call('HMGET', K_PENDING, unpack(counters))
local write, forget, dirty, clean, named = {}, {}, {}, {}, {}
local function mark(counter, since)
  dirty[#dirty + 1] = string.format('%.0f', since)
  dirty[#dirty + 1] = counter
end
for i = 1, #counters do
  local counter, at = counters[i], 4 * i + 1
  local settled_to, again_after_ms = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 3])
  if again_after_ms < 0 then
    local checkpoint = call('HGET', K_SETTLED_COUNTS, counter)
    local bytes = checkpoint and #checkpoint - CHECKPOINT_BYTES
    again_after_ms = bytes and bytes ~= 1 and bytes ~= 1 + CLEARED_BYTES and -again_after_ms or 0
  end
  local p = read_pending(counter, raws[i])
  local left = {}
  for j = 1, #p.entries do
    if (p.entries[j][1] + 1) * WINDOW_MS > settled_to then left[#left + 1] = p.entries[j] end
  end
  if ARGV[4] == '1' and #left < #p.entries then
    named[#named + 1] = ARGV[at + 1]
    named[#named + 1] = counter
  end
  p.entries = left
  local is_last_word, was_closed = settled_to >= p.closed_to or p.closed_to > now, p.closed
  if is_last_word then p.closed, p.closed_to = tonumber(ARGV[at + 2]), settled_to end
  if #left > 0 then
    mark(counter, (first_window(p) + 1) * WINDOW_MS)
  elseif is_last_word and again_after_ms > 0 then
    mark(counter, now + again_after_ms - due_after_ms)
  elseif is_last_word and p.closed > 0 and p.closed ~= was_closed then
    mark(counter, now)
  elseif is_last_word then
    clean[#clean + 1] = counter
  end
  if #left > 0 or p.closed > 0 or not is_last_word then
    write[#write + 1] = counter
    write[#write + 1] = write_pending(p)
  elseif raws[i] then
    forget[#forget + 1] = counter
  end
  if p.had_older then forget[#forget + 1] = OLDER_FIELD .. counter end
end
if #write > 0 then call('HSET', K_PENDING, unpack(write)) end
if #forget > 0 then call('HDEL', K_PENDING, unpack(forget)) end
if #dirty > 0 then call('ZADD', K_DIRTY, unpack(dirty)) end
if #clean > 0 then call('ZREM', K_DIRTY, unpack(clean)) end
if #named > 0 then call('ZADD', K_SETTLED_NAMES, 'GT', unpack(named)) end
return {OK}
