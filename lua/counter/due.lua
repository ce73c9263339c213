#!lua flags=allow-oom
-- due: the counters whose rollup is due, the longest waiting first; each is held: it falls due again after hold_ms (N9).
-- KEYS state pending dirty   ARGV now_ms revision due_after_ms limit hold_ms
-- RETURNS {OK, now_ms, when the next falls due or 0, how many are dirty, (counter, when it fell due)...}
-- WHY the score of a dirty counter is since when it waits, not when it falls due: when due_after_ms changes, counters that
-- wait already follow. Behind the point it has how often the counter was returned since its last rollup, in sixteenths.
-- WHY it holds and does not remove: the caller may die before it has made a job. Only a rollup takes a counter out.
-- WHY each hold is HOLD_GROWTH times as long as the last one: the counter has a job already, unless the caller died or the
-- queue has lost the job, and that is rare.
--@include shard
local due_after_ms, hold_ms = tonumber(ARGV[3]), tonumber(ARGV[5])
local SIXTEENTH, RETURNED_MAX = 0.0625, 15
local latest = string.format('%.4f', now - due_after_ms + RETURNED_MAX * SIXTEENTH)
local found = call('ZRANGE', K_DIRTY, '-inf', latest, 'BYSCORE', 'LIMIT', '0', ARGV[4], 'WITHSCORES')
local hold, due_ms = {}, {}
for i = 1, #found, 2 do
  local score = tonumber(found[i + 1])
  local since = floor(score)
  local returned = (score - since) / SIXTEENTH
  local longer_ms = hold_ms * HOLD_GROWTH ^ returned
  local held_to = now + math.max(hold_ms, math.min(longer_ms, HOLD_MAX_MS)) - due_after_ms
  hold[i] = string.format('%.4f', held_to + math.min(returned + 1, RETURNED_MAX) * SIXTEENTH)
  hold[i + 1], due_ms[i] = found[i], since + due_after_ms
end
if #found > 0 then call('ZADD', K_DIRTY, unpack(hold)) end
local first = call('ZRANGE', K_DIRTY, '0', '0', 'WITHSCORES')
local out = {OK, now, first[2] and floor(tonumber(first[2])) + due_after_ms or 0, call('ZCARD', K_DIRTY)}
for i = 1, #found, 2 do
  out[#out + 1], out[#out + 2] = found[i], due_ms[i]
end
return out
