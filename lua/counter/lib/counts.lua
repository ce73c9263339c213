-- counts: the pending records that an append changes, each the short way or the long way.
-- Needs bound_high and bound_low, read from ARGV[4], and what slots defines. The sections count_event and write_counts
-- use it.
-- WHY two ways: a Lua number is exact to 2^53. An event that is smaller than that, in the latest window of its counter,
-- takes the short way: one entry of the record is unpacked, the rest stays bytes. Every other event takes the long way:
-- the record is unpacked, sums in halves, and of its chunks the one that has the window.
local CLEAR, STAMPED, WIDE, BOUNDED = 1, 2, 4, 8
local EXACT = 4503599627370496
-- The record of the short way is a list; that of the long way is what read_record returns, known by its `entries`.
local CHANGED, LAST_WRITE, CLOSED, CLOSED_TO, GROSS, NUMBER = 1, 2, 3, 4, 5, 6
local SUM, SIZE, FIRST, FINAL, CLEARED, REST = 7, 8, 9, 10, 11, 12
local SHORT, NEWEST = '>I6BI6i8I5i8i8I2I2I2', '>I5i8i8I2I2I2'
-- When a window begins and the older entries take more than this, they move to their own field (docs/decisions/0022).
local REST_BYTES_MAX = 4 * ENTRY_BYTES
local raws = call('HMGET', K_PENDING, unpack(ARGV, FIRST_COUNTER, FIRST_FIELD - 1))
local pending, was_clean = {}, {}

local function write_short(p)
  return pack(SHORT, unpack(p, LAST_WRITE, CLEARED)) .. p[REST]
end

-- Unpacks entries into a record, or into a chunk.
local function read_entries(into, raw)
  into.entries, into.by_window = {}, {}
  for at = 1, #raw, ENTRY_BYTES do
    local e = {unpick(ENTRY, raw, at)}
    into.entries[#into.entries + 1] = e
    into.by_window[e[1]] = e
  end
  return into
end

local function pack_entries(entries, from, to)
  local out = {}
  for i = from, to do out[#out + 1] = pack(ENTRY, unpack(entries[i], 1, 8)) end
  return table.concat(out)
end

-- The same record the long way.
local function read_long(counter, p)
  if p.entries then return p end
  local long = read_record(ARGV[FIRST_COUNTER + counter - 1], p[CHANGED] and write_short(p) or raws[counter])
  -- chunks: those that were read, by number. changed: of those, what must be written.
  long[CHANGED], long.chunks, long.changed = p[CHANGED], {}, {}
  return read_entries(long, long.recent)
end

-- A chunk of a record of the long way; `raw`: its entries, where they are known.
local function read_chunk(p, number, raw)
  if not p.chunks[number] then
    local field = chunk_field(p.counter, number)
    p.chunks[number] = read_entries({field = field}, raw or call('HGET', K_PENDING, field))
  end
  return p.chunks[number]
end

-- Where the entry of a window is or belongs: in the record or in one of its chunks.
local function part_of(p, window)
  if p.first > p.last or p.by_window[window] or window > first_window(p.recent) then return p end
  for _, chunk in pairs(p.chunks) do
    if chunk.by_window[window] then return chunk end
  end
  local number, raw = chunk_of(p, window)
  return number and read_chunk(p, number, raw) or p
end

-- The record as it stood before this call: the long way where its sum of sizes is no longer exact the short way.
local function read_either(counter)
  local raw = raws[counter]
  if raw and #raw > PENDING_HEAD_BYTES then
    local p = {false, unpick(SHORT, raw)}
    p[REST] = sub(raw, p[REST])
    return p[GROSS] < EXACT and p or read_long(counter, p)
  end
  -- Without windows there are no sums.
  local last_write, closed, closed_to = 0, 0, 0
  if raw then last_write, closed, closed_to = unpick(PENDING_HEAD, raw) end
  return {false, last_write, closed, closed_to, 0, 0, 0, 0, 0, 0, 0, ''}
end

-- `at` is where the item begins. OVERFLOW leaves the record as it was.
local function count_long(p, at, window, offset, is_clear)
  local high, low = unpick('>i4I4', ARGV[ITEMS], at + 13)
  local size_high, size_low = high, low
  if high < 0 then size_high, size_low = plus(-1 - high, HALF - low, 0, 0) end
  local all_high, all_low = plus(p.high, p.low, size_high, size_low)
  local is_beyond = all_high > bound_high or all_high == bound_high and all_low > bound_low
  if is_beyond and not is_clear then return OVERFLOW end
  p.high, p.low = all_high, all_low
  local part = part_of(p, window)
  if part.field and not part.is_changed then
    part.is_changed = true
    p.changed[#p.changed + 1] = part
  end
  local e = part.by_window[window]
  if not e then
    e = {window, 0, 0, 0, 0, 65535, 0, 0}
    part.entries[#part.entries + 1] = e
    part.by_window[window] = e
  end
  if is_clear then
    if offset + 1 > e[8] then e[8] = offset + 1 end
    if offset >= e[7] then e[2], e[3], e[6], e[7] = 0, 0, 65535, 0 end
  else
    e[4], e[5] = plus(e[4], e[5], size_high, size_low)
    if offset >= e[8] then
      e[2], e[3] = plus(e[2], e[3], high, low)
      if offset < e[6] then e[6] = offset end
      if offset > e[7] then e[7] = offset end
    end
  end
  p.last_write, p[CHANGED] = math.max(p.last_write, window * WINDOW_MS + offset), true
  return OK
end
