-- bounds: conditional adds (N18): the count that an accurate read would give now, and whether an add would pass a bound.
-- It is a count of this shard alone: such a namespace has one event bucket for each counter, so the home shard has the
-- checkpoint and all events. Needs what slots and counts define.
-- The counts of this call, {high, low, time of the last clear or -1}; none for a counter that other changes have changed
-- since.
local totals = {}

-- The sum of one counter's adds after an offset in a window, in halves, what this call has added to its slots included.
local function sum_after(id, window, offset)
  local slots_of, layout, high, low = 1, call('GET', K_LAYOUT) or '', 0, 0
  for at = 1, #layout, 9 do
    local from, n = unpick('>I5I4', layout, at)
    if from <= window then slots_of = n end
  end
  local changed = {}
  for i = 1, fields do changed[ARGV[FIRST_FIELD + i - 1]] = slots[i] end
  local prefix, bucket_s = string.match(KEYS[EVENTS], '^(.*:(%d+):)%d+$')
  local key = prefix .. string.format('%.0f', floor(window * WINDOW_MS / (bucket_s * 1000)))
  for i = 0, slots_of - 1 do
    local field = pack('>I5I4', window, i)
    local slot, at = changed[field] or call('HGET', key, field) or '', 1
    while at <= #slot do
      local length, digits = byte(slot, at, at + 1)
      local id_at = at + 2 + digits
      if digits > 0 and sub(slot, id_at + 2, id_at + 13) == id and unpick('>I2', slot, id_at) > offset then
        -- Labels stand before a delta of eight bytes.
        local from = math.max(at + 2, id_at - 8)
        local sign = byte(slot, from) >= 128 and '\255' or '\0'
        local delta = string.rep(sign, 8 - digits) .. sub(slot, from, id_at - 1)
        high, low = plus(high, low, unpick('>i4I4', delta))
      end
      at = at + length + 1
    end
  end
  return high, low
end

-- All entries of a record, those of its chunks included.
local function all_entries(p)
  if p.first > p.last then return p.entries end
  local parts, all = {p}, {}
  for number = p.first, p.last do parts[#parts + 1] = read_chunk(p, number) end
  for _, part in ipairs(parts) do
    for _, e in ipairs(part.entries) do all[#all + 1] = e end
  end
  return all
end

local function count_of(counter, id)
  local high, low, exact_to, cleared = 0, 0, 0, -1
  local checkpoint = call('HGET', K_SETTLED_COUNTS, ARGV[FIRST_COUNTER + counter - 1])
  if checkpoint then high, low, exact_to = unpick(CHECKPOINT, checkpoint) end
  local entries = all_entries(read_long(counter, pending[counter] or read_either(counter)))
  -- What begins before exact_to was committed by a rollup that has not settled it yet.
  for i = 1, #entries do
    local e = entries[i]
    local begins = e[1] * WINDOW_MS
    if begins >= exact_to and e[8] > 0 then cleared = math.max(cleared, begins + e[8] - 1) end
  end
  if cleared >= 0 then high, low = 0, 0 end
  for i = 1, #entries do
    local e = entries[i]
    local begins = e[1] * WINDOW_MS
    if begins >= exact_to and begins + e[6] > cleared then
      high, low = plus(high, low, e[2], e[3])
    elseif begins >= exact_to and begins + e[7] > cleared then
      high, low = plus(high, low, sum_after(id, e[1], cleared - begins))
    end
  end
  return {high, low, cleared}
end

-- The code of an add, and its counter's count after it; `at`: where its item begins, `bounds_at`: its bounds.
-- WHY no add at the time of a clear or before: the clear would remove it, so the count would not change.
local function check_bounds(counter, id, time, is_stamped, at, bounds_at)
  local total = totals[counter] or count_of(counter, sub(id, 3, 14))
  totals[counter] = total
  if time <= total[3] then return is_stamped and RESTAMP or TOO_OLD end
  local by_high, by_low = unpick('>i4I4', ARGV[ITEMS], at + 13)
  local least_high, least_low, most_high, most_low = unpick('>i4I4i4I4', ARGV[ITEMS], bounds_at)
  local high, low = plus(total[1], total[2], by_high, by_low)
  -- Beyond 64 bits no bound is passed that is not there: count_event refuses the add.
  if high < -HALF / 2 then high, low = -HALF / 2, 0 elseif high >= HALF / 2 then high, low = HALF / 2 - 1, HALF - 1 end
  local falls = by_high < 0 and (high < least_high or high == least_high and low < least_low)
  local rises = by_high >= 0 and by_high + by_low > 0 and (high > most_high or high == most_high and low > most_low)
  if falls or rises then return BOUND_REACHED, total end
  return OK, {high, low, total[3]}
end
