-- write_counts: a section of append: writes the pending records that have changed, and marks counters that had nothing
-- pending as dirty (N9).
-- WHY the entries of the second field become a chunk when they are enough: it is written every few windows, so it must not grow.
do
  local write, dirty, forget = {}, {}, {}
  local function put(field, value)
    write[#write + 1] = field
    write[#write + 1] = value
  end
  for i = 1, counters do
    local p, counter = pending[i], ARGV[FIRST_COUNTER + i - 1]
    if p and p[CHANGED] then
      if p.entries then
        table.sort(p.entries, function(a, b) return a[1] > b[1] end)
        local n = #p.entries
        if n >= 2 * CHUNK_ENTRIES then
          p.last = p.last + 1
          put(chunk_field(counter, p.last), pack_entries(p.entries, CHUNK_ENTRIES + 1, n))
          n = CHUNK_ENTRIES
        end
        for _, chunk in ipairs(p.changed) do
          table.sort(chunk.entries, function(a, b) return a[1] > b[1] end)
          put(chunk.field, pack_entries(chunk.entries, 1, #chunk.entries))
        end
        put(counter, head_of(p) .. pack_entries(p.entries, 1, n))
        if p.first <= p.last then
          put(OLDER_FIELD .. counter, pack(CHUNKS, p.first, p.last))
        elseif p.had_older then
          forget[#forget + 1] = OLDER_FIELD .. counter
        end
      else
        if #p[REST] > REST_BYTES_MAX then
          local older = OLDER_FIELD .. counter
          local entries, first, last = p[CLOSED] >= HAS_OLDER and call('HGET', K_PENDING, older) or '', 1, 0
          local bytes = #entries - #entries % ENTRY_BYTES
          if bytes < #entries then first, last = unpick(CHUNKS, entries, bytes + 1) end
          if bytes >= CHUNK_ENTRIES * ENTRY_BYTES then
            last = last + 1
            put(chunk_field(counter, last), sub(entries, 1, bytes))
            bytes = 0
          end
          put(older, p[REST] .. sub(entries, 1, bytes) .. (first <= last and pack(CHUNKS, first, last) or ''))
          p[CLOSED], p[REST] = p[CLOSED] % HAS_OLDER + HAS_OLDER, ''
        end
        put(counter, write_short(p))
      end
      if was_clean[i] then
        local first = p.entries and p.entries[#p.entries][1] or was_clean[i]
        dirty[#dirty + 1] = string.format('%.0f', (first + 1) * WINDOW_MS)
        dirty[#dirty + 1] = counter
      end
    end
  end
  call('HSET', K_PENDING, unpack(write))
  if #forget > 0 then call('HDEL', K_PENDING, unpack(forget)) end
  if #dirty > 0 then call('ZADD', K_DIRTY, unpack(dirty)) end
end
