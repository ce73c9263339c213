#!lua
-- append: adds and clears become events of one shard of the event log (N3, N5, N6, N9).
-- KEYS state pending dirty layout events... (a hash for each time bucket that the items are in)
-- ARGV now_ms revision version parameters counter... field... item...
-- parameters: accept_limit_ms I6 future_limit_ms I6 close_after_ms I6 delete_after_ms I6 due_after_ms I6, bound as I4 and
-- I4: what the sizes of one counter's pending deltas may come to here, so that the sum of any of them fits; counters I2; of
-- each events hash the number of its fields I2
-- item: field I2, counter I2, time_ms I6, length of its id B, flags B, delta i8; then its record: length of the rest B,
-- offset in its granule I2, hash of the counter 12, length and text of the token (so far its id), then what it does:
-- clear B, delta in as few bytes as hold it.
-- RETURNS {OK, now_ms, codes: one byte for each item, or '' for OK to all} | {RELAID, version, layout}: a field is the
-- number of a granule and of one of its slots, and the caller knew a layout of slots that is no longer the last one
-- WHY records stand in slots, several to a field: a field of its own costs 90 bytes for 20 of use. Not more of them: with
-- each record that comes its whole slot is written. How many slots a granule
-- has only changes for times that no event can have yet, so an id is always looked for where it was put.
-- WHY two ways of counting: Lua's numbers are exact to 2^53. What is smaller, and happens in the latest granule of its
-- counter, takes the short way: one record unpacked in part, and packed. All else takes the long way, in halves.
--@include shard
local find, char = string.find, string.char
local accept_limit_ms, future_limit_ms, close_after_ms, delete_after_ms, due_after_ms, bound_high, bound_low, counters,
  counts_at = unpick('>I6I6I6I6I6I4I4I2', ARGV[4])
if S[VERSION] ~= tonumber(ARGV[3]) then return {RELAID, S[VERSION], call('GET', K_LAYOUT)} end

local EVENTS, FIRST_COUNTER, FIRST_FIELD = 5, 5, 5 + counters
local CLEAR, STAMPED, WIDE = 1, 2, 4
local EXACT = 4503599627370496

local fields, slots, before = 0, {}, {}
local at = counts_at
for key = EVENTS, #KEYS do
  local n
  n, at = unpick('>I2', ARGV[4], at)
  local first = FIRST_FIELD + fields
  local found = call('HMGET', KEYS[key], unpack(ARGV, first, first + n - 1))
  for i = 1, n do
    local slot = found[i] or ''
    slots[fields + i], before[fields + i] = slot, slot
  end
  fields = fields + n
end
local FIRST_ITEM = FIRST_FIELD + fields
local raws = call('HMGET', K_PENDING, unpack(ARGV, FIRST_COUNTER, FIRST_FIELD - 1))

-- The record of an id, if it is there: ids stand behind the length of their record, not just anywhere.
local function recorded(slot, id)
  if not find(slot, id, 1, true) then return end
  local at = 1
  while at <= #slot do
    local length = byte(slot, at)
    if sub(slot, at + 1, at + #id) == id then return sub(slot, at, at + length) end
    at = at + length + 1
  end
end

-- The short way: a pending record, of which only the latest granule is unpacked.
local SHORT, SHORT_BYTES, NEWEST = '>I6BI6i8I5i8i8I2I2I2', 48, '>I5i8i8I2I2I2'

local function take(raw)
  if raw and #raw >= SHORT_BYTES then
    local last_write, closed, closed_to, gross, granule, sum, size, first, last, clear = unpick(SHORT, raw)
    if gross >= EXACT then return read_pending(raw) end
    return {last_write = last_write, closed = closed, closed_to = closed_to, gross = gross, granule = granule, sum = sum,
      size = size, first = first, last = last, clear = clear, tail = sub(raw, SHORT_BYTES + 1)}
  end
  local last_write, closed, closed_to, gross = 0, 0, 0, 0
  if raw then last_write, closed, closed_to, gross = unpick('>I6BI6i8', raw) end
  return {last_write = last_write, closed = closed, closed_to = closed_to, gross = gross, granule = 0, sum = 0, size = 0,
    first = 0, last = 0, clear = 0, tail = ''}
end

local function packed(p)
  if p.entries then return write_pending(p) end
  if p.granule == 0 then return pack('>I6BI6i8', p.last_write, p.closed, p.closed_to, p.gross) end
  return pack(SHORT, p.last_write, p.closed, p.closed_to, p.gross, p.granule, p.sum, p.size, p.first, p.last, p.clear)
    .. p.tail
end

-- The size of a delta, in halves.
local function size_of(high, low)
  if high >= 0 then return high, low end
  if low == 0 then return -high, 0 end
  return -high - 1, HALF - low
end

-- The long way.
local function count_long(p, raw, granule, offset, is_clear)
  local high, low = unpick('>i4I4', raw, 13)
  local size_high, size_low = 0, 0
  if not is_clear then
    size_high, size_low = size_of(high, low)
    local all_high, all_low = plus(p.high, p.low, size_high, size_low)
    if all_high > bound_high or all_high == bound_high and all_low > bound_low then return OVERFLOW end
    p.high, p.low = all_high, all_low
  end
  local e = p.by_granule[granule]
  if not e then
    e = {granule, 0, 0, 0, 0, 65535, 0, 0}
    p.is_new = p.is_new or #p.entries == 0
    p.entries[#p.entries + 1] = e
    p.by_granule[granule] = e
  end
  if is_clear then
    if offset + 1 > e[8] then e[8] = offset + 1 end
  else
    e[2], e[3] = plus(e[2], e[3], high, low)
    e[4], e[5] = plus(e[4], e[5], size_high, size_low)
    if offset < e[6] then e[6] = offset end
    if offset > e[7] then e[7] = offset end
  end
  return OK
end

local oldest = math.max(S[OPEN], S[FENCE], now - accept_limit_ms)
local latest, expired = now + future_limit_ms, math.max(now - close_after_ms, S[PRUNED])
local pending, codes, added = {}, {}, 0
local all_ok = true
for i = FIRST_ITEM, #ARGV do
  local raw = ARGV[i]
  local field, counter, time, id_length, flags, delta = unpick('>I2I2I6BBi8', raw)
  local record, code, slot = sub(raw, 21), OK, slots[field]
  local is_clear, granule = flags % 2 == CLEAR, (time - time % GRANULE_MS) / GRANULE_MS
  if flags % WIDE >= STAMPED then
    -- It happens now; its field is that of a granule.
    if granule ~= (now - now % GRANULE_MS) / GRANULE_MS then
      code = RESTAMP
    else
      time = now
      record = sub(record, 1, 1) .. pack('>I2', now % GRANULE_MS) .. sub(record, 4)
    end
  end
  if code ~= OK then
    -- As it is.
  elseif time < expired then
    code = EXPIRED
  else
    local known = slot ~= '' and recorded(slot, sub(record, 2, id_length + 1))
    if known then
      code = known == record and DUPLICATE or CONFLICT
    elseif time < oldest then
      code = TOO_OLD
      if now - accept_limit_ms > S[OPEN] then S[OPEN] = now - accept_limit_ms end
    elseif time > latest then
      code = TOO_EARLY
    else
      local p = pending[counter]
      if not p then
        p = take(raws[counter])
        pending[counter] = p
      end
      local size = delta < 0 and -delta or delta
      if is_clear then
        size = 0
      elseif delta > 0 and p.closed == CLOSED_UP or delta < 0 and p.closed == CLOSED_DOWN then
        code = OVERFLOW
      end
      local offset = time % GRANULE_MS
      if code == OK then
        if not p.entries and (flags >= WIDE or granule < p.granule or p.gross + size >= EXACT) then
          local long = read_pending(packed(p))
          long.is_new, long.changed = p.is_new, p.changed
          p = long
          pending[counter] = p
        end
        if p.entries then
          code = count_long(p, raw, granule, offset, is_clear)
        else
          if granule > p.granule then
            if p.granule == 0 then
              p.is_new, p.oldest = true, granule
            else
              p.tail = pack(NEWEST, p.granule, p.sum, p.size, p.first, p.last, p.clear) .. p.tail
            end
            p.granule, p.sum, p.size, p.first, p.last, p.clear = granule, 0, 0, 65535, 0, 0
          end
          if is_clear then
            if offset + 1 > p.clear then p.clear = offset + 1 end
          else
            p.sum, p.size, p.gross = p.sum + delta, p.size + size, p.gross + size
            if offset < p.first then p.first = offset end
            if offset > p.last then p.last = offset end
          end
        end
      end
      if code == OK then
        if time > p.last_write then p.last_write = time end
        p.changed = true
        slots[field] = slot .. record
        added = added + 1
      end
    end
  end
  codes[#codes + 1] = code
  all_ok = all_ok and code == OK
end

local answer = ''
if not all_ok then
  for i = 1, #codes do codes[i] = char(codes[i]) end
  answer = table.concat(codes)
end
if added == 0 then
  -- Also then something is written: who waits for replicas must wait for what an answer relies on.
  close_shard()
  return {OK, now, answer}
end

-- Slots follow the rate, three to six records to one: up at once, down after ten minutes. For granules only in which no
-- event can be yet.
local granule = floor(now / GRANULE_MS)
if S[GRANULE] ~= granule then
  S[LAST] = S[GRANULE] == granule - 1 and S[ARRIVED] or 0
  S[GRANULE], S[ARRIVED] = granule, 0
end
S[ARRIVED] = S[ARRIVED] + added
local n = S[SLOTS]
while S[ARRIVED] > 6 * n and n < SLOTS_MAX do n = n * 2 end
if n == S[SLOTS] and granule > S[RELAID_AT] + 600000 / GRANULE_MS then
  while math.max(S[ARRIVED], S[LAST]) < n and n > SLOTS_MIN do n = n / 2 end
end
if n ~= S[SLOTS] then
  local from = floor((now + future_limit_ms) / GRANULE_MS) + 1
  local layout = call('GET', K_LAYOUT)
  if S[RELAID_AT] == from then layout = sub(layout, 1, #layout - 9) end
  -- What is so old that no event is kept there any more goes.
  while #layout > 9 and unpick('>I5', layout, 10) * GRANULE_MS < now - 2 * delete_after_ms do layout = sub(layout, 10) end
  call('SET', K_LAYOUT, layout .. pack('>I5I4', from, n))
  S[SLOTS], S[VERSION], S[RELAID_AT] = n, S[VERSION] + 1, from
end

fields, at = 0, counts_at
for key = EVENTS, #KEYS do
  local count
  count, at = unpick('>I2', ARGV[4], at)
  local write = {}
  for i = fields + 1, fields + count do
    if slots[i] ~= before[i] then
      write[#write + 1] = ARGV[FIRST_FIELD + i - 1]
      write[#write + 1] = slots[i]
    end
  end
  if #write > 0 then call('HSET', KEYS[key], unpack(write)) end
  fields = fields + count
end
local write, dirty = {}, {}
for i = 1, counters do
  local p = pending[i]
  if p and p.changed then
    write[#write + 1] = ARGV[FIRST_COUNTER + i - 1]
    write[#write + 1] = packed(p)
    if p.is_new then
      local first = p.entries and first_granule(p) or p.oldest
      dirty[#dirty + 1] = string.format('%.0f', (first + 1) * GRANULE_MS + due_after_ms)
      dirty[#dirty + 1] = ARGV[FIRST_COUNTER + i - 1]
    end
  end
end
call('HSET', K_PENDING, unpack(write))
if #dirty > 0 then call('ZADD', K_DIRTY, unpack(dirty)) end
close_shard()
return {OK, now, answer}
