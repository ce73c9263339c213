#!lua
-- append: adds and clears become events of one shard of the event log (N3, N5, N6, N9).
-- KEYS state pending dirty layout events... (a hash for each time bucket that the items are in)
-- ARGV now_ms revision version parameters items counter... field... id...
-- parameters: accept_limit_ms I6 future_limit_ms I6 close_after_ms I6, bound as I4 and I4: what the sizes of one counter's
-- pending deltas may come to here, so that the sum of any of them fits; counters I2; of each events hash the number of its
-- fields I2
-- items, one after the other: field I2, counter I2, time_ms I6, flags B, delta i8, length of what follows B; then its
-- record up to its id: length of the rest B, length of the delta B (0: a clear), and the delta in as few bytes as hold it.
-- id: offset in its window I2, hash of the counter 12, packed token. With it a record ends.
-- RETURNS {OK, now_ms, codes: one byte for each item, or '' for OK to all} | {LAYOUT_CHANGED, version, layout}: a field is the
-- number of a window and of one of its slots, and the caller knew a layout of slots that is no longer the last one
-- WHY records stand in slots, several to a field: a field of its own costs 90 bytes for 20 of use. Not more of them: with
-- each record that comes its whole slot is written. How many slots a window
-- has only changes for times that no event has yet, so an id is always looked for where it was put.
-- WHY ids are arguments of their own and all else is one: Redis hashes every byte of every string that Lua makes.
-- WHY two ways of counting: Lua's numbers are exact to 2^53. What is smaller, and happens in the latest window of its
-- counter, takes the short way: one record unpacked in part, and packed. All else takes the long way, in halves.
--@include shard
local find, char = string.find, string.char
local accept_limit_ms, future_limit_ms, close_after_ms, bound_high, bound_low, counters, counts_at =
  unpick('>I6I6I6I4I4I2', ARGV[4])
if S[VERSION] ~= tonumber(ARGV[3]) then return {LAYOUT_CHANGED, S[VERSION], call('GET', K_LAYOUT)} end

local EVENTS, ITEMS, FIRST_COUNTER, FIRST_FIELD = 5, 5, 6, 6 + counters
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
local FIRST_ID = FIRST_FIELD + fields
local raws = call('HMGET', K_PENDING, unpack(ARGV, FIRST_COUNTER, FIRST_FIELD - 1))

-- The record of an id, if it is there: an id is the end of a record, not just anywhere.
local function recorded(slot, id)
  if not find(slot, id, 1, true) then return end
  local at, id_length = 1, #id
  while at <= #slot do
    local length, from = byte(slot, at), at + 2 + byte(slot, at + 1)
    if at + length + 1 - from == id_length and sub(slot, from, at + length) == id then
      return sub(slot, at, at + length)
    end
    at = at + length + 1
  end
end

-- The short way: a pending record as a list, of which only the latest window is unpacked; or, once it has gone the long
-- way, what `read_pending` makes of it, as `entries`.
local CHANGED, LAST_WRITE, CLOSED, CLOSED_TO, GROSS, NUMBER, SUM, SIZE, FIRST, FINAL, CLEARED, REST =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
local SHORT, SHORT_BYTES, NEWEST = '>I6BI6i8I5i8i8I2I2I2', 48, '>I5i8i8I2I2I2'
-- More than this of older windows goes to a field of its own when the next one begins.
local REST_BYTES_MAX = 4 * ENTRY_BYTES

local function take(counter)
  local raw = raws[counter]
  if raw and #raw >= SHORT_BYTES then
    local p = {false, unpick(SHORT, raw)}
    if p[GROSS] >= EXACT then return read_pending(whole(ARGV[FIRST_COUNTER + counter - 1], raw)) end
    p[REST] = sub(raw, SHORT_BYTES + 1)
    return p
  end
  local p = {false, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ''}
  if raw then p[LAST_WRITE], p[CLOSED], p[CLOSED_TO], p[GROSS] = unpick('>I6BI6i8', raw) end
  return p
end

local function packed(p)
  if p.entries then return write_pending(p) end
  if p[NUMBER] == 0 then return pack('>I6BI6i8', unpack(p, LAST_WRITE, GROSS)) end
  return pack(SHORT, unpack(p, LAST_WRITE, CLEARED)) .. p[REST]
end

-- The size of a delta, in halves.
local function size_of(high, low)
  if high >= 0 then return high, low end
  if low == 0 then return -high, 0 end
  return -high - 1, HALF - low
end

-- The long way; `at` is where the item stands.
local function count_long(p, at, window, offset, is_clear)
  local high, low = unpick('>i4I4', ARGV[ITEMS], at + 11)
  local size_high, size_low = 0, 0
  if not is_clear then
    size_high, size_low = size_of(high, low)
    local all_high, all_low = plus(p.high, p.low, size_high, size_low)
    if all_high > bound_high or all_high == bound_high and all_low > bound_low then return OVERFLOW end
    p.high, p.low = all_high, all_low
  end
  local e = p.by_window[window]
  if not e then
    e = {window, 0, 0, 0, 0, 65535, 0, 0}
    p.entries[#p.entries + 1] = e
    p.by_window[window] = e
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

local oldest = math.max(S[OPEN], S[SEALED_TO], now - accept_limit_ms)
local latest, expired = now + future_limit_ms, math.max(now - close_after_ms, S[PRUNED])
local now_window = floor(now / WINDOW_MS)
local items, pending, was_clean, codes, added = ARGV[ITEMS], {}, {}, {}, 0
local all_ok = true
at = 1
for i = FIRST_ID, #ARGV do
  local item, id = at, ARGV[i]
  local field, counter, time, flags, delta, length
  field, counter, time, flags, delta, length, at = unpick('>I2I2I6Bi8B', items, at)
  local record, code, slot = sub(items, at, at + length - 1), OK, slots[field]
  at = at + length
  local is_clear, window = flags % 2 == CLEAR, floor(time / WINDOW_MS)
  if flags % WIDE >= STAMPED then
    -- It happens now; its field is that of a window.
    if window ~= now_window then
      code = RESTAMP
    else
      time = now
      id = pack('>I2', now % WINDOW_MS) .. sub(id, 3)
    end
  end
  if code ~= OK then
    -- As it is.
  elseif time < expired then
    code = EXPIRED
  else
    local known = slot ~= '' and recorded(slot, id)
    if known then
      code = known == record .. id and DUPLICATE or CONFLICT
    elseif time < oldest then
      code = TOO_OLD
      if now - accept_limit_ms > S[OPEN] then S[OPEN] = now - accept_limit_ms end
    elseif time > latest then
      code = TOO_EARLY
    else
      local p = pending[counter]
      if not p then
        p = take(counter)
        pending[counter] = p
      end
      local size, closed = delta < 0 and -delta or delta, p.closed or p[CLOSED] % HAS_OLDER
      if is_clear then
        size = 0
      elseif delta > 0 and closed == CLOSED_UP or delta < 0 and closed == CLOSED_DOWN then
        code = OVERFLOW
      end
      local offset = time - window * WINDOW_MS
      if code == OK then
        if not p.entries and (flags >= WIDE or window < p[NUMBER] or p[GROSS] + size >= EXACT) then
          local long = read_pending(whole(ARGV[FIRST_COUNTER + counter - 1], packed(p)))
          long[CHANGED] = p[CHANGED]
          p = long
          pending[counter] = p
        end
        if p.entries then
          was_clean[counter] = was_clean[counter] or #p.entries == 0 and window
          code = count_long(p, item, window, offset, is_clear)
          if code == OK and time > p.last_write then p.last_write = time end
        else
          if window > p[NUMBER] then
            if p[NUMBER] == 0 then
              was_clean[counter] = window
            else
              p[REST] = pack(NEWEST, unpack(p, NUMBER, CLEARED)) .. p[REST]
            end
            p[NUMBER], p[SUM], p[SIZE], p[FIRST], p[FINAL], p[CLEARED] = window, 0, 0, 65535, 0, 0
          end
          if is_clear then
            if offset + 1 > p[CLEARED] then p[CLEARED] = offset + 1 end
          else
            p[SUM], p[SIZE], p[GROSS] = p[SUM] + delta, p[SIZE] + size, p[GROSS] + size
            if offset < p[FIRST] then p[FIRST] = offset end
            if offset > p[FINAL] then p[FINAL] = offset end
          end
          if time > p[LAST_WRITE] then p[LAST_WRITE] = time end
        end
      end
      if code == OK then
        p[CHANGED] = true
        slots[field] = slot .. record .. id
        if window > S[LATEST] then S[LATEST] = window end
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

-- Slots follow the rate, three to six records to one: up at once, down after ten minutes. For windows only in which no
-- event is yet.
if S[WINDOW] ~= now_window then
  S[LAST] = S[WINDOW] == now_window - 1 and S[ARRIVED] or 0
  S[WINDOW], S[ARRIVED] = now_window, 0
end
S[ARRIVED] = S[ARRIVED] + added
local n = S[SLOTS]
while S[ARRIVED] > 6 * n and n < SLOTS_MAX do n = n * 2 end
if n == S[SLOTS] and now_window > S[LAYOUT_FROM] + 600000 / WINDOW_MS then
  while math.max(S[ARRIVED], S[LAST]) < n and n > SLOTS_MIN do n = n / 2 end
end
if n ~= S[SLOTS] then
  local from = S[LATEST] + 1
  local layout = call('GET', K_LAYOUT)
  if S[LAYOUT_FROM] == from then layout = sub(layout, 1, #layout - 9) end
  -- What is of times only of which all records are gone: a rollup that is late may need any others, however old.
  while #layout > 9 and unpick('>I5', layout, 10) * WINDOW_MS <= S[PRUNED] do layout = sub(layout, 10) end
  call('SET', K_LAYOUT, layout .. pack('>I5I4', from, n))
  S[SLOTS], S[VERSION], S[LAYOUT_FROM] = n, S[VERSION] + 1, from
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
    write[#write + 1] = packed(p)
    if was_clean[i] then
      local first = p.entries and first_window(p) or was_clean[i]
      dirty[#dirty + 1] = string.format('%.0f', (first + 1) * WINDOW_MS)
      dirty[#dirty + 1] = counter
    end
  end
end
call('HSET', K_PENDING, unpack(write))
if #forget > 0 then call('HDEL', K_PENDING, unpack(forget)) end
if #dirty > 0 then call('ZADD', K_DIRTY, unpack(dirty)) end
close_shard()
return {OK, now, answer}
