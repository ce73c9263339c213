-- shard: what every script of a shard of the event log begins with: its clock, its fence, and pending records.
-- ARGV now_ms (0: the store's clock; tests pass their own) revision ...
-- RETURNS from the including script: {NO_SHARD} | {STALE, revision}: the namespace is told otherwise by now
-- State record (LOG_STATE): revision fence open clock granule arrived last slots. The clock never goes back. Every time
-- below the fence is immutable: nothing is added there, so what a rollup has summed stays so (N6, N7). Whatever the
-- limits become, nothing before `open` is taken any more: somebody was told that it is too old (N3).
local call, pack, unpick = redis.call, struct.pack, struct.unpack
local byte, sub, floor = string.byte, string.sub, math.floor

local REVISION, FENCE, OPEN, CLOCK, GRANULE, ARRIVED, LAST, SLOTS = 1, 2, 3, 4, 5, 6, 7, 8
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
  call('SET', K_STATE, pack(LOG_STATE, unpack(S, 1, 8)))
end

-- A pending record: last_write_ms I6, closed B (CLOSED_UP | CLOSED_DOWN) since the rollup to closed_to_ms I6, then for
-- each granule of time with events that no rollup has settled: number I5, sum as high i4 and low I4, the sum of the
-- sizes of its deltas as high I4 and low I4, first and last offset of an add I2 I2 (first > last: none), offset of its
-- last clear + 1 I2 (0: none). Sums have 64 bits, which a Lua number cannot hold: they are kept in halves.
local ENTRY = '>I5i4I4I4I4I2I2I2'
local ENTRY_BYTES, HEAD, HEAD_BYTES = 27, '>I6BI6', 13
local HALF = 4294967296

-- The sum of two numbers in halves.
local function plus(high, low, more_high, more_low)
  low = low + more_low
  if low >= HALF then return high + more_high + 1, low - HALF end
  return high + more_high, low
end

local function read_pending(raw)
  local p = {last_write = 0, closed = 0, closed_to = 0, entries = {}, by_granule = {}, high = 0, low = 0}
  if not raw then return p end
  p.last_write, p.closed, p.closed_to = unpick(HEAD, raw)
  for at = HEAD_BYTES + 1, #raw, ENTRY_BYTES do
    local e = {unpick(ENTRY, raw, at)}
    p.entries[#p.entries + 1] = e
    p.by_granule[e[1]] = e
    p.high, p.low = plus(p.high, p.low, e[4], e[5])
  end
  return p
end

local function write_pending(p)
  local out = {pack(HEAD, p.last_write, p.closed, p.closed_to)}
  for i = 1, #p.entries do out[i + 1] = pack(ENTRY, unpack(p.entries[i], 1, 8)) end
  return table.concat(out)
end

-- When a rollup of what is pending is due: its first granule is over, the adds of coalesce_ms are in, and no event
-- can come before that any more.
local function due_at(p, due_after_ms)
  local first = p.entries[1][1]
  for i = 2, #p.entries do
    if p.entries[i][1] < first then first = p.entries[i][1] end
  end
  return (first + 1) * GRANULE_MS + due_after_ms
end
