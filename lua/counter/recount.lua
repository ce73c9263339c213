#!lua
-- recount: a counter begins another epoch: its count is replaced, and the recount is recorded (N12).
-- KEYS counts deleted state recounts crossings pending dirty [behind (lib/regions)]
-- ARGV now_ms, revision (lib/home), counter, what stands (lib/home), checkpoint, the counter's recounts, crossings (lib/crossings),
-- since_ms: since when the counter waits for a rollup
-- '' for the recounts: they stay as they are. The counter follows a clear of another region
-- RETURNS {OK} | {LOST}: a rollup, a recount or a deletion has written the checkpoint since the caller read it
-- WHY the recounts come whole: no other recount has written them since, or the epoch is another one.
-- WHY the counter waits for a rollup then: only a later rollup publishes the count (W6). One that has committed before must not
-- settle the counter, so settle is to find that a later one has the last word.
--@include home
--@include crossings
local counter, recounts, crossings = ARGV[3], ARGV[6], ARGV[7]
local before = call('HGET', K_COUNTS, counter)
if not before or stand_of(before) ~= ARGV[4] then return {LOST} end
call('HSET', K_COUNTS, counter, ARGV[5])
if recounts ~= '' then call('HSET', K_RECOUNTS, counter, recounts) end
if crossings ~= '' then append_crossings(counter, crossings) end
if K_BEHIND then call('ZADD', K_BEHIND, '0', counter) end
local pending = call('HGET', K_HOME_PENDING, counter) or pack(PENDING_HEAD, 0, 0, 0, 0, 0)
local last_write, flags, closed_to, high, low, windows_at = unpick(PENDING_HEAD, pending)
local _, _, exact_to = unpick(CHECKPOINT, ARGV[5])
local head = pack(PENDING_HEAD, last_write, flags, math.max(closed_to, exact_to + 1), high, low)
call('HSET', K_HOME_PENDING, counter, head .. string.sub(pending, windows_at))
call('ZADD', K_HOME_DIRTY, ARGV[8], counter)
return {OK}
