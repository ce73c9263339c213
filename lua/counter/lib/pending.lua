-- pending: the record of what no rollup has settled of a counter, in one shard.
-- Head (PENDING_HEAD): time of the latest event I6, closed B (CLOSED_UP or CLOSED_DOWN), time of the rollup that decided over
-- closed I6, sum of all sizes below as high i4 and low I4. Then one entry for each window with events, the latest first: its
-- number I5, sum of its deltas i8, sum of all their sizes i8, offsets of its first and last add I2 I2 (first > last: no add),
-- offset of its last clear + 1 I2 (0: no clear). An add that a clear of its window has removed is only in the sum of sizes. A
-- clear that comes after adds on both sides of it removes none: the reader divides the window (RollupLog::sum_after).
-- Sums have 64 bits and a Lua number is exact to 2^53, so this file reads and keeps them in halves of 32 bits.
-- Where `closed` has HAS_OLDER, the entries of older windows are in a second field (docs/decisions/0022).
local ENTRY, ENTRY_BYTES = '>I5i4I4I4I4I2I2I2', 27
local HALF = 4294967296

-- The sum of two numbers in halves.
local function plus(high, low, more_high, more_low)
  low = low + more_low
  if low >= HALF then return high + more_high + 1, low - HALF end
  return high + more_high, low
end

-- The whole record of a counter, given the field under its name.
local function whole(counter, raw)
  if raw and byte(raw, 7) >= HAS_OLDER then return raw .. call('HGET', K_PENDING, OLDER_FIELD .. counter) end
  return raw
end

-- Unpacks the whole record of a counter, given the field under its name. `write_pending` packs a whole record, too, so the
-- field of older windows must then be deleted.
local function read_pending(counter, raw)
  local p = {last_write = 0, closed = 0, closed_to = 0, entries = {}, by_window = {}, high = 0, low = 0}
  if not raw then return p end
  raw = whole(counter, raw)
  p.last_write, p.closed, p.closed_to, p.high, p.low = unpick(PENDING_HEAD, raw)
  p.had_older, p.closed = p.closed >= HAS_OLDER, p.closed % HAS_OLDER
  for at = PENDING_HEAD_BYTES + 1, #raw, ENTRY_BYTES do
    local e = {unpick(ENTRY, raw, at)}
    p.entries[#p.entries + 1] = e
    p.by_window[e[1]] = e
  end
  return p
end

local function write_pending(p)
  table.sort(p.entries, function(a, b) return a[1] > b[1] end)
  local high, low = 0, 0
  local out = {}
  for i = 1, #p.entries do
    local e = p.entries[i]
    high, low = plus(high, low, e[4], e[5])
    out[i] = pack(ENTRY, unpack(e, 1, 8))
  end
  return pack(PENDING_HEAD, p.last_write, p.closed, p.closed_to, high, low) .. table.concat(out)
end

-- The earliest window with events. The entries must be in order, as read_pending and write_pending leave them.
local function first_window(p)
  return p.entries[#p.entries][1]
end
