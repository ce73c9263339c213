-- pending: the record of what no rollup has settled of a counter, in one shard.
-- Head (PENDING_HEAD): time of the latest event I6, closed B (CLOSED_UP or CLOSED_DOWN), time of the rollup that decided over
-- closed I6, sum of all sizes below as high i4 and low I4. Then one entry for each window with events, the latest first: its
-- number I5, sum of its deltas i8, sum of all their sizes i8, offsets of its first and last add I2 I2 (first > last: no add),
-- offset of its last clear + 1 I2 (0: no clear). An add that a clear of its window has removed is only in the sum of sizes. A
-- clear that comes after adds on both sides of it removes none: the reader divides the window (RollupLog::sum_after).
-- Sums have 64 bits and a Lua number is exact to 2^53, so this file reads and keeps them in halves of 32 bits.
-- Where `closed` has HAS_OLDER, the entries of older windows are in a second field (docs/decisions/0022). It may end with CHUNKS:
-- the numbers of a first and a last chunk I4 I4. A chunk is one more field: at first 64 entries or more, all of them older
-- than those of the next chunk and of the two fields. A chunk keeps its number. An event in one of its windows writes it again, and a
-- settle that removes a part of it.
-- Where there is a chunk, the first field has an entry, too.
-- WHY chunks: without rollups a counter may have windows of hours, and an add must not write all of them again.
-- WHY their numbers are behind the entries: an earlier version keeps them there, or fails, and counts nothing wrong.
local ENTRY, ENTRY_BYTES, NUMBER_OF = '>I5i4I4I4I4I2I2I2', 27, '>I5'
local CHUNKS, CHUNKS_BYTES, CHUNK_ENTRIES, SETTLE_BYTES_MAX = '>I4I4', 8, 64, 262144
local HALF = 4294967296

-- The sum of two numbers in halves.
local function plus(high, low, more_high, more_low)
  low = low + more_low
  if low >= HALF then return high + more_high + 1, low - HALF end
  return high + more_high, low
end

-- The record of a counter without its chunks, given the field under its name.
local function with_older(counter, raw)
  if raw and byte(raw, 7) >= HAS_OLDER then return raw .. call('HGET', K_PENDING, OLDER_FIELD .. counter) end
  return raw
end

local function chunk_field(counter, number)
  return OLDER_FIELD .. string.format('%.0f', number) .. OLDER_FIELD .. counter
end

-- Unpacks a record, given the field under its name. `recent`: the entries of both fields. Who writes the record puts all of
-- them into the first field, so the second one must then be deleted, or have only CHUNKS.
local function read_record(counter, raw)
  local p = {counter = counter, last_write = 0, closed = 0, closed_to = 0, high = 0, low = 0, recent = '', first = 1, last = 0}
  if not raw then return p end
  raw = with_older(counter, raw)
  local to = #raw
  if (to - PENDING_HEAD_BYTES) % ENTRY_BYTES > 0 then
    to = to - CHUNKS_BYTES
    p.first, p.last = unpick(CHUNKS, raw, to + 1)
  end
  p.last_write, p.closed, p.closed_to, p.high, p.low = unpick(PENDING_HEAD, raw)
  p.had_older, p.closed = p.closed >= HAS_OLDER, p.closed % HAS_OLDER
  p.recent = sub(raw, PENDING_HEAD_BYTES + 1, to)
  return p
end

local function head_of(p)
  local closed = p.closed + (p.first <= p.last and HAS_OLDER or 0)
  return pack(PENDING_HEAD, p.last_write, closed, p.closed_to, p.high, p.low)
end

-- The number of the chunk in which a window belongs, and its entries: the first one that has it or a later one. Nothing: it
-- belongs in the fields of later windows.
local function chunk_of(p, window)
  local from, to, found = p.first, p.last + 1, nil
  while from < to do
    local middle = floor((from + to) / 2)
    local entries = call('HGET', K_PENDING, chunk_field(p.counter, middle))
    if unpick(NUMBER_OF, entries) < window then from = middle + 1 else to, found = middle, entries end
  end
  return found and from, found
end

-- The earliest window of packed entries.
local function first_window(entries)
  return (unpick(NUMBER_OF, entries, #entries - ENTRY_BYTES + 1))
end

-- The entries of windows that do not end by a time; the sizes of the others leave the record's sum.
local function cut(p, entries, settled_to)
  local to = #entries
  while to > 0 and (unpick(NUMBER_OF, entries, to - ENTRY_BYTES + 1) + 1) * WINDOW_MS <= settled_to do
    local high, low = unpick('>I4I4', entries, to - 13)
    p.high, p.low = plus(p.high, p.low, -1 - high, HALF - low)
    to = to - ENTRY_BYTES
  end
  p.is_cut = p.is_cut or to < #entries
  return sub(entries, 1, to)
end
