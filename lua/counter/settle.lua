#!lua flags=allow-oom
-- settle: windows that a rollup has committed are no longer pending; a counter with nothing newer is not dirty (N8, N9).
-- KEYS state pending dirty layout counts names
-- ARGV now_ms revision due_after_ms is_archived (counter settled_to_ms closed again_after_ms)...
-- is_archived: '1': the counters' names are kept for the archive, because records have only their hashes (N15)
-- closed: what the committed count requires (0, CLOSED_UP or CLOSED_DOWN), unless a later rollup has decided already
-- again_after_ms: a counter in circulation falls due again after this (N10); 0: it leaves circulation; below 0: it was
-- deleted, and leaves circulation unless a later rollup has counted an add since (N14)
-- RETURNS {OK, the position of each counter whose windows are still too many for this call, from 0 on...}: the caller repeats it
-- for them. They are as closed and as dirty as before.
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
local write, forget, dirty, clean, named, is_done, out, bytes_read = {}, {}, {}, {}, {}, {}, {OK}, 0
local function add(list, first, second) list[#list + 1], list[#list + 2] = first, second end
local function mark(counter, since) add(dirty, string.format('%.0f', since), counter) end
-- Takes the oldest chunks, then the record. Returns the oldest entries left; nil: it was enough for one call.
local function take(p, settled_to)
  while p.first <= p.last do
    if bytes_read >= SETTLE_BYTES_MAX then return end
    local field = chunk_field(p.counter, p.first)
    local chunk = call('HGET', K_PENDING, field)
    local left = cut(p, chunk, settled_to)
    bytes_read = bytes_read + #chunk
    if #left > 0 then
      if #left < #chunk then add(write, field, left) end
      return left
    end
    forget[#forget + 1], p.first = field, p.first + 1
  end
  p.recent = cut(p, p.recent, settled_to)
  return p.recent
end
local function settle(i, counter, at)
  local settled_to, again_after_ms = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 3])
  if again_after_ms < 0 then
    local checkpoint = call('HGET', K_SETTLED_COUNTS, counter)
    local bytes = checkpoint and #checkpoint - CHECKPOINT_BYTES
    again_after_ms = bytes and bytes ~= 1 and bytes ~= 1 + CLEARED_BYTES and -again_after_ms or 0
  end
  local p = read_record(counter, raws[i])
  local left = take(p, settled_to)
  if ARGV[4] == '1' and p.is_cut then add(named, ARGV[at + 1], counter) end
  local is_last_word, was_closed = left and (settled_to >= p.closed_to or p.closed_to > now), p.closed
  if is_last_word then p.closed, p.closed_to = tonumber(ARGV[at + 2]), settled_to end
  if not left then
    out[#out + 1] = i - 1
  elseif #left > 0 then
    mark(counter, (first_window(left) + 1) * WINDOW_MS)
  elseif is_last_word and again_after_ms > 0 then
    mark(counter, now + again_after_ms - due_after_ms)
  elseif is_last_word and p.closed > 0 and p.closed ~= was_closed then
    mark(counter, now)
  elseif is_last_word then
    clean[#clean + 1] = counter
  end
  if not (left or p.is_cut) then return end
  is_done[counter] = true
  if p.recent ~= '' or p.closed > 0 or not is_last_word then add(write, counter, head_of(p) .. p.recent)
  elseif raws[i] then forget[#forget + 1] = counter end
  if p.first <= p.last then add(write, OLDER_FIELD .. counter, pack(CHUNKS, p.first, p.last))
  elseif p.had_older then forget[#forget + 1] = OLDER_FIELD .. counter end
end
for i = 1, #counters do
  -- A counter that is named twice: `raws` lacks what this call is going to write for it.
  if bytes_read >= SETTLE_BYTES_MAX or is_done[counters[i]] then out[#out + 1] = i - 1
  else settle(i, counters[i], 4 * i + 1) end
end
if #write > 0 then call('HSET', K_PENDING, unpack(write)) end
if #forget > 0 then call('HDEL', K_PENDING, unpack(forget)) end
if #dirty > 0 then call('ZADD', K_DIRTY, unpack(dirty)) end
if #clean > 0 then call('ZREM', K_DIRTY, unpack(clean)) end
if #named > 0 then call('ZADD', K_SETTLED_NAMES, 'GT', unpack(named)) end
return out
