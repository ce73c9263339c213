-- write_counts: a section of append: writes the pending records that have changed, and marks counters that had nothing
-- pending as dirty (N9).
do
  local write, dirty, forget = {}, {}, {}
  for i = 1, counters do
    local p, counter = pending[i], ARGV[FIRST_COUNTER + i - 1]
    if p and p[CHANGED] then
      if p.had_older then
        forget[#forget + 1] = OLDER_FIELD .. counter
      elseif not p.entries and #p[REST] > REST_BYTES_MAX then
        local older = p[CLOSED] >= HAS_OLDER and call('HGET', K_PENDING, OLDER_FIELD .. counter) or ''
        write[#write + 1] = OLDER_FIELD .. counter
        write[#write + 1] = p[REST] .. older
        p[CLOSED], p[REST] = p[CLOSED] % HAS_OLDER + HAS_OLDER, ''
      end
      write[#write + 1] = counter
      write[#write + 1] = write_either(p)
      if was_clean[i] then
        -- write_either has put the entries in order.
        local first = p.entries and first_window(p) or was_clean[i]
        dirty[#dirty + 1] = string.format('%.0f', (first + 1) * WINDOW_MS)
        dirty[#dirty + 1] = counter
      end
    end
  end
  call('HSET', K_PENDING, unpack(write))
  if #forget > 0 then call('HDEL', K_PENDING, unpack(forget)) end
  if #dirty > 0 then call('ZADD', K_DIRTY, unpack(dirty)) end
end
