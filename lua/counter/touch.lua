#!lua flags=allow-oom
-- touch: clients read these counters: what is pending of them falls due as soon as it can be sealed (N11).
-- KEYS state pending dirty   ARGV now_ms revision due_after_ms lag_ms (counter, 1: also if nothing is pending)...
-- RETURNS {OK, how many fall due sooner}
-- WHY only counters that wait for more events: one that is due, or held for a rollup under way, needs no second rollup.
-- WHY it writes nothing where nothing falls due sooner: thousands of reads a second mostly change nothing.
--@include shard
--@include pending
local due_after_ms, lag_ms = tonumber(ARGV[3]), tonumber(ARGV[4])
local counters, dirty = {}, {}
for i = 5, #ARGV, 2 do counters[#counters + 1] = ARGV[i] end
local function mark(counter, since)
  dirty[#dirty + 1] = string.format('%.0f', since)
  dirty[#dirty + 1] = counter
end
local found = call('ZMSCORE', K_DIRTY, unpack(counters))
for i = 1, #counters do
  local counter, since = counters[i], tonumber(found[i] or '')
  if since then
    local p = read_record(counter, call('HGET', K_PENDING, counter))
    -- The mark is the end of the window that was counted first, which need not be the earliest.
    local window = since / WINDOW_MS - 1
    local _, chunk = chunk_of(p, window)
    local entries = chunk or p.recent
    for at = 1, #entries, ENTRY_BYTES do
      if unpick(NUMBER_OF, entries, at) == window then
        local oldest = p.first <= p.last and call('HGET', K_PENDING, chunk_field(counter, p.first)) or p.recent
        local sooner = (first_window(oldest) + 1) * WINDOW_MS + lag_ms - due_after_ms
        if sooner < since then mark(counter, sooner) end
        break
      end
    end
  elseif ARGV[2 * i + 4] == '1' then
    mark(counter, now - due_after_ms)
  end
end
if #dirty > 0 then call('ZADD', K_DIRTY, unpack(dirty)) end
return {OK, #dirty / 2}
