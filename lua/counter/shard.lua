-- shard: what every script of a shard of the event log begins with: its clock, its fence, and pending records.
-- ARGV now_ms (0: the store's clock; tests pass their own) revision ...
-- RETURNS from the including script: {NO_SHARD} | {STALE, revision}: the namespace is told otherwise by now
-- State record (LOG_STATE): revision fence open clock window arrived last slots version layout_from pruned latest.
-- The clock never goes back. No event is in a window after `latest`. Records before `pruned` may be gone: whether such an
-- event was counted, nobody knows any more. Every time below the fence is immutable: nothing is added there, so what a
-- rollup has summed stays so (N6, N7).
-- Whatever the limits become, nothing before `open` is taken any more: somebody was told that it is too old (N3).
local call, pack, unpick = redis.call, struct.pack, struct.unpack
local byte, sub, floor = string.byte, string.sub, math.floor

local REVISION, SEALED_TO, OPEN, CLOCK = 1, 2, 3, 4
local WINDOW, ARRIVED, LAST, SLOTS, VERSION, LAYOUT_FROM, PRUNED, LATEST = 5, 6, 7, 8, 9, 10, 11, 12
local state_raw = call('GET', K_STATE)
if not state_raw then return {NO_SHARD} end
local S = {unpick(LOG_STATE, state_raw)}
if S[REVISION] ~= tonumber(ARGV[2]) then return {STALE, S[REVISION]} end

local now = tonumber(ARGV[1])
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000 + floor(time[2] / 1000)
end
if now < S[CLOCK] then now = S[CLOCK] end
S[CLOCK] = now

local function close_shard()
  call('SET', K_STATE, pack(LOG_STATE, unpack(S, 1, 12)))
end

-- A pending record: last_write_ms I6, closed B (CLOSED_UP | CLOSED_DOWN) since the rollup to closed_to_ms I6, the sum of
-- all sizes below i8; then for each window of time with events that no rollup has settled, the latest first: number I5,
-- sum of its deltas i8, sum of their sizes i8, first and last offset of an add I2 I2 (first > last: none), offset of its
-- last clear + 1 I2 (0: none). Sums have 64 bits, which a Lua number cannot hold: here they are read and kept in halves.
-- Where `closed` has HAS_OLDER, the windows after the first few stand in a field of their own.
local ENTRY = '>I5i4I4I4I4I2I2I2'
local ENTRY_BYTES, HEAD, HEAD_BYTES = 27, '>I6BI6', 21
local HALF = 4294967296

-- The sum of two numbers in halves.
local function plus(high, low, more_high, more_low)
  low = low + more_low
  if low >= HALF then return high + more_high + 1, low - HALF end
  return high + more_high, low
end

-- All that is pending of a counter, of whose record this is the first part.
local function whole(counter, raw)
  if raw and byte(raw, 7) >= HAS_OLDER then return raw .. call('HGET', K_PENDING, OLDER_FIELD .. counter) end
  return raw
end

-- A whole record. What `write_pending` makes of it is whole, too: the field of older windows then goes.
local function read_pending(raw)
  local p = {last_write = 0, closed = 0, closed_to = 0, entries = {}, by_window = {}, high = 0, low = 0}
  if not raw then return p end
  p.last_write, p.closed, p.closed_to = unpick(HEAD, raw)
  p.had_older, p.closed = p.closed >= HAS_OLDER, p.closed % HAS_OLDER
  for at = HEAD_BYTES + 1, #raw, ENTRY_BYTES do
    local e = {unpick(ENTRY, raw, at)}
    p.entries[#p.entries + 1] = e
    p.by_window[e[1]] = e
    p.high, p.low = plus(p.high, p.low, e[4], e[5])
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
  return pack('>I6BI6i4I4', p.last_write, p.closed, p.closed_to, high, low) .. table.concat(out)
end

-- The first window with something pending.
local function first_window(p)
  local first = p.entries[1][1]
  for i = 2, #p.entries do
    if p.entries[i][1] < first then first = p.entries[i][1] end
  end
  return first
end
