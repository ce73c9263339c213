#!lua flags=allow-oom
-- touch: somebody reads these counters: what of them is pending is rolled up as soon as it can be (N11).
-- KEYS state pending dirty   ARGV now_ms revision due_after_ms lag_ms (counter, 1: also if nothing is pending)...
-- RETURNS {OK, how many were hurried on}
-- WHY only what still waits for more to come: a counter that is due, or held for a rollup on its way, needs no second one.
-- WHY nothing is written where nothing is hurried on: readers come by the thousand, and mostly there is nothing to do.
--@include shard
local due_after_ms, lag_ms = tonumber(ARGV[3]), tonumber(ARGV[4])
local counters, dirty = {}, {}
for i = 5, #ARGV, 2 do counters[#counters + 1] = ARGV[i] end
local function waits(counter, since)
  dirty[#dirty + 1] = string.format('%.0f', since)
  dirty[#dirty + 1] = counter
end
local found = call('ZMSCORE', K_DIRTY, unpack(counters))
for i = 1, #counters do
  local counter, since = counters[i], tonumber(found[i] or '')
  if since then
    local p = read_pending(whole(counter, call('HGET', K_PENDING, counter)))
    for j = 1, #p.entries do
      -- It waits since the window that came first, which need not be the earliest.
      if (p.entries[j][1] + 1) * WINDOW_MS == since then
        local sooner = (first_window(p) + 1) * WINDOW_MS + lag_ms - due_after_ms
        if sooner < since then waits(counter, sooner) end
        break
      end
    end
  elseif ARGV[2 * i + 4] == '1' then
    waits(counter, now - due_after_ms)
  end
end
if #dirty > 0 then
  call('ZADD', K_DIRTY, unpack(dirty))
  close_shard()
end
return {OK, #dirty / 2}
