#!lua flags=allow-oom
-- touch: somebody reads these counters: what of them is pending is rolled up as soon as it can be (N11).
-- KEYS state pending dirty   ARGV now_ms revision due_after_ms lag_ms (counter, 1: also if nothing is pending)...
-- RETURNS {OK}
-- WHY only what still waits for more to come: a counter that is due, or held for a rollup on its way, needs no second one.
--@include shard
local due_after_ms, lag_ms = tonumber(ARGV[3]), tonumber(ARGV[4])
for i = 5, #ARGV, 2 do
  local counter = ARGV[i]
  local since = tonumber(call('ZSCORE', K_DIRTY, counter) or '')
  if since then
    local p = read_pending(whole(counter, call('HGET', K_PENDING, counter)))
    for j = 1, #p.entries do
      -- It waits since the granule that came first, which need not be the earliest.
      if (p.entries[j][1] + 1) * GRANULE_MS == since then
        local due_ms = (first_granule(p) + 1) * GRANULE_MS + lag_ms
        call('ZADD', K_DIRTY, string.format('%.0f', due_ms - due_after_ms), counter)
        break
      end
    end
  elseif ARGV[i + 1] == '1' then
    call('ZADD', K_DIRTY, string.format('%.0f', now - due_after_ms), counter)
  end
end
close_shard()
return {OK}
