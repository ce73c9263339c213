#!lua flags=allow-oom
-- delete: a counter has no count from now on; its clear of this time is in the log already (N14).
-- KEYS counts deleted state recounts [crossings pending dirty behind (lib/regions)]
-- ARGV now_ms, revision (lib/home), latest_ahead_ms, counter, time of the clear
-- RETURNS {OK} | {TOO_EARLY}: the clear's time is further ahead of the clock than that of any new event
-- WHY it leaves a mark in place of the checkpoint: a rollup that began before then loses its compare-and-set. Events of
-- earlier windows that still arrive never count, because the mark is exact to the window of the clear.
-- WHY nothing changes behind that: a rollup has counted the clear. Where the counter lives again, this call is a repetition.
-- WHY the time of the last clear stays if it is later: a counter may have followed a clear of another region whose clock is
-- ahead.
-- WHY TOO_EARLY: the clock was set back. A reset may have counted the clear and lowered the checkpoint (lower), and the mark
-- would remove what was added since.
--@include clock
--@include home
local counter, cleared_ms = ARGV[4], tonumber(ARGV[5])
if cleared_ms > now + tonumber(ARGV[3]) then return {TOO_EARLY} end
local window_ms = cleared_ms - cleared_ms % WINDOW_MS
local before = call('HGET', K_COUNTS, counter)
local high, low, exact_to, last_write, leased_at, token = 0, 0, 0, 0, 0, 0
if before then high, low, exact_to, last_write, leased_at, token = unpick(CHECKPOINT, before) end
local is_empty = high == 0 and low == 0 and last_write == cleared_ms
if exact_to <= window_ms or is_empty then
  local mark = pack(CHECKPOINT, 0, 0, math.max(exact_to, window_ms), cleared_ms, leased_at, token) .. DELETED
  local last_clear = before and last_clear_of(before) or 0
  if K_BEHIND or last_clear > 0 then mark = mark .. pack('>I6', math.max(last_clear, cleared_ms)) end
  call('HSET', K_COUNTS, counter, mark)
  call('HDEL', K_RECOUNTS, counter)
  if K_BEHIND then call('ZADD', K_BEHIND, string.format('%.0f', now), counter) end
end
call('ZADD', K_DELETED, 'GT', ARGV[5], counter)
return {OK}
