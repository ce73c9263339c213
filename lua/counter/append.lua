#!lua
-- append: adds and clears become events of one shard of the event log (N3, N5, N6, N9).
-- KEYS state pending dirty events... (a hash for each time bucket that the items are in)
-- ARGV now_ms revision parameters counter... item...
-- parameters: accept_limit_ms I6 future_limit_ms I6 close_after_ms I6 due_after_ms I6 counters I2, bound as I4 and I4: what
-- the sizes of one counter's pending deltas may come to here, so that the sum of any of them fits
-- item: events key B, counter I2, time_ms I6, hash I4, length of its key I1, clear B, delta as high i4 and low I4;
-- then its record: length of the rest B, offset in its granule I2, hash of the counter 12, length and text of the token
-- (so far its key), then what it does: clear B, delta in as few bytes as hold it.
-- RETURNS {OK, now_ms, code...}
-- WHY records stand in slots, many to a field: a field of its own costs 90 bytes for 20 of use. A hash's field '' says
-- from which granule on it has how many slots to a granule; the number only changes for times that no event can have
-- yet, so an id is always looked for where it was put.
--@include shard
local accept_limit_ms, future_limit_ms, close_after_ms, due_after_ms, counters, bound_high, bound_low =
  unpick('>I6I6I6I6I2I4I4', ARGV[3])

local pending, raws = {}, call('HMGET', K_PENDING, unpack(ARGV, 4, 3 + counters))
for i = 1, counters do pending[i] = read_pending(raws[i]) end

-- Where each item's record belongs: the hash, and the field in it.
local items, fields, asked = {}, {}, {}
local layouts = {}
local function slots_at(key, granule)
  local layout = layouts[key]
  if not layout then
    local raw = call('HGET', KEYS[key], '')
    if not raw then
      while math.max(S[LAST], S[ARRIVED]) < 2 * S[SLOTS] and S[SLOTS] > 1 do S[SLOTS] = floor(S[SLOTS] / 2) end
    end
    layout = {raw = raw or pack('>I5I4', 0, S[SLOTS]), changed = not raw}
    layouts[key] = layout
  end
  local slots = 1
  for at = 1, #layout.raw, 9 do
    local from, n = unpick('>I5I4', layout.raw, at)
    if from > granule then break end
    slots = n
  end
  return slots
end

for i = 4 + counters, #ARGV do
  local raw = ARGV[i]
  local key, counter, time, hash, key_length, clear, high, low, at = unpick('>BI2I6I4BBi4I4', raw)
  local granule = floor(time / GRANULE_MS)
  local field = pack('>I5I4', granule, hash % slots_at(key, granule))
  items[#items + 1] = {key = key, counter = counter, time = time, granule = granule, field = field, clear = clear,
    high = high, low = low, record = sub(raw, at), id = sub(raw, at + 1, at + key_length)}
  local of_key = fields[key]
  if not of_key then
    of_key = {}
    fields[key], asked[key] = of_key, {}
  end
  if not of_key[field] then
    of_key[field] = ''
    asked[key][#asked[key] + 1] = field
  end
end
for key, list in pairs(asked) do
  local found = call('HMGET', KEYS[key], unpack(list))
  for i = 1, #list do fields[key][list[i]] = found[i] or '' end
end

local function recorded(slot, id)
  if not string.find(slot, id, 1, true) then return end
  local at = 1
  while at <= #slot do
    local length = byte(slot, at)
    if sub(slot, at + 1, at + #id) == id then return sub(slot, at, at + length) end
    at = at + length + 1
  end
end

-- The size of a delta, in halves.
local function size(high, low)
  if high >= 0 then return high, low end
  if low == 0 then return -high, 0 end
  return -high - 1, HALF - low
end

local function refused(item, p)
  if item.time < S[OPEN] or item.time < S[FENCE] or item.time < now - accept_limit_ms then
    if now - accept_limit_ms > S[OPEN] then S[OPEN] = now - accept_limit_ms end
    return TOO_OLD
  end
  if item.time > now + future_limit_ms then return TOO_EARLY end
  if item.clear == 1 then return end
  local high, low = plus(p.high, p.low, size(item.high, item.low))
  if high > bound_high or high == bound_high and low > bound_low then return OVERFLOW end
  local is_up = item.high > 0 or item.high == 0 and item.low > 0
  if is_up and p.closed == CLOSED_UP or item.high < 0 and p.closed == CLOSED_DOWN then return OVERFLOW end
end

local function count(item, p)
  local e = p.by_granule[item.granule]
  if not e then
    e = {item.granule, 0, 0, 0, 0, 65535, 0, 0}
    p.entries[#p.entries + 1] = e
    p.by_granule[item.granule] = e
    p.is_new = p.is_new or #p.entries == 1
  end
  local offset = item.time - item.granule * GRANULE_MS
  if item.clear == 1 then
    if offset + 1 > e[8] then e[8] = offset + 1 end
  else
    local high, low = size(item.high, item.low)
    e[2], e[3] = plus(e[2], e[3], item.high, item.low)
    e[4], e[5] = plus(e[4], e[5], high, low)
    p.high, p.low = plus(p.high, p.low, high, low)
    if offset < e[6] then e[6] = offset end
    if offset > e[7] then e[7] = offset end
  end
  if item.time > p.last_write then p.last_write = item.time end
  p.changed = true
end

local codes, added = {OK, now}, 0
local changed = {}
for i = 1, #items do
  local item = items[i]
  local p, slot = pending[item.counter], fields[item.key][item.field]
  local code = OK
  if item.time < now - close_after_ms then
    code = EXPIRED
  else
    local before = recorded(slot, item.id)
    if before then
      code = before == item.record and DUPLICATE or CONFLICT
    else
      code = refused(item, p) or OK
      if code == OK then
        count(item, p)
        fields[item.key][item.field] = slot .. item.record
        changed[item.key] = changed[item.key] or {}
        changed[item.key][item.field] = true
        added = added + 1
      end
    end
  end
  codes[i + 2] = code
end
if added == 0 then
  -- Also then something is written: who waits for replicas must wait for what an answer relies on.
  close_shard()
  return codes
end

-- Slots follow the rate, about eight records to one: up at once, down with the next hash. For granules only in which
-- no event can be yet.
local granule = floor(now / GRANULE_MS)
if S[GRANULE] ~= granule then
  S[LAST] = S[GRANULE] == granule - 1 and S[ARRIVED] or 0
  S[GRANULE], S[ARRIVED] = granule, 0
end
S[ARRIVED] = S[ARRIVED] + added
while S[ARRIVED] > 16 * S[SLOTS] and S[SLOTS] < SLOTS_MAX do S[SLOTS] = S[SLOTS] * 2 end
local from = floor((now + future_limit_ms) / GRANULE_MS) + 1
for _, layout in pairs(layouts) do
  local last_from, last = unpick('>I5I4', layout.raw, #layout.raw - 8)
  if last < S[SLOTS] and last_from < from then
    layout.raw, layout.changed = layout.raw .. pack('>I5I4', from, S[SLOTS]), true
  end
end

for key, layout in pairs(layouts) do
  local write = {}
  for field in pairs(changed[key] or {}) do
    write[#write + 1] = field
    write[#write + 1] = fields[key][field]
  end
  if layout.changed and #write > 0 then
    write[#write + 1] = ''
    write[#write + 1] = layout.raw
  end
  if #write > 0 then call('HSET', KEYS[key], unpack(write)) end
end
local write, dirty = {}, {}
for i = 1, counters do
  local p = pending[i]
  if p.changed then
    write[#write + 1] = ARGV[3 + i]
    write[#write + 1] = write_pending(p)
    if p.is_new then
      dirty[#dirty + 1] = string.format('%.0f', due_at(p, due_after_ms))
      dirty[#dirty + 1] = ARGV[3 + i]
    end
  end
end
call('HSET', K_PENDING, unpack(write))
if #dirty > 0 then call('ZADD', K_DIRTY, unpack(dirty)) end
close_shard()
return codes
