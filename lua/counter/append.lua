#!lua
-- append: adds and clears become events of one shard of the event log (N3, N5, N6, N9).
-- KEYS state pending dirty layout counts events... (a hash for each time bucket that the items are in)
-- ARGV now_ms revision version parameters items counter... field... id...
-- parameters: accept_limit_ms I6, future_limit_ms I6, close_after_ms I6; the bound I4 I4 on the sum of the sizes of one
-- counter's pending deltas here, so that any part of them fits; number of counters I2; for each events hash the number of
-- its fields I2
-- items, one after the other: field I2, field in the next window I2 (0: the caller gave the time), counter I2, time_ms I6,
-- flags B, delta i8 (of a clear: 0), length of what follows B; then the record up to its id (lib/slots); then, where flags
-- has BOUNDED, the least and the most that the count may become by it i8 i8 (lib/bounds)
-- id: offset in its window I2, hash of the counter 12, packed token
-- RETURNS {OK, now_ms, the time of the events that happen now, codes: one byte for each item, or '' if all are OK, counts:
-- i8 for each BOUND_REACHED}
--   | {LAYOUT_CHANGED, version, layout}: the caller placed the items by an older layout of slots
-- WHY several records stand in one slot: a field for each costs 90 bytes for 20 of use. WHY not more of them: each append
-- writes the whole slot again.
-- WHY each id is an argument and all else of the items is one: Redis hashes every byte of every string that Lua makes.
--@include shard
--@include pending
local accept_limit_ms, future_limit_ms, close_after_ms, bound_high, bound_low, counters, counts_at =
  unpick('>I6I6I6I4I4I2', ARGV[4])
if S[VERSION] ~= tonumber(ARGV[3]) then return {LAYOUT_CHANGED, S[VERSION], call('GET', K_LAYOUT)} end
--@include slots
--@include counts
--@include bounds

local oldest = math.max(S[OPEN], S[SEALED_TO], now - accept_limit_ms)
local latest, expired = now + future_limit_ms, now - close_after_ms
local now_window, stamp_window = floor(now / WINDOW_MS), floor(stamp / WINDOW_MS)
local items, codes, reached, added, at = ARGV[ITEMS], {}, {}, 0, 1
for i = FIRST_ID, #ARGV do
  local item, id = at, ARGV[i]
  local field, next_field, counter, time, flags, delta, length
  field, next_field, counter, time, flags, delta, length, at = unpick('>I2I2I2I6Bi8B', items, at)
  local code, record, bounds_at, total = OK, sub(items, at, at + length - 1), at + length, nil
  at = flags < BOUNDED and bounds_at or bounds_at + 16
  local is_clear, window, is_stamped = flags % 2 == CLEAR, floor(time / WINDOW_MS), flags % WIDE >= STAMPED
  -- An event that happens now has a field in the window that the caller took for the current one, and one in the next window.
  if is_stamped and window + 1 == stamp_window then window, field = stamp_window, next_field end
  if is_stamped and window == stamp_window then
    time, id = stamp, pack('>I2', stamp % WINDOW_MS) .. sub(id, 3)
  end
  local slot = slots[field]
  local known = slot ~= '' and recorded(slot, id)
  if is_stamped and window ~= stamp_window then
    code = RESTAMP
  elseif time < expired then
    code = EXPIRED
  elseif time < S[PRUNED] then
    code = ARCHIVED
  elseif known then
    code = known == record .. id and DUPLICATE or CONFLICT
  elseif time < oldest then
    code = TOO_OLD
    -- No further: the clock may be wrong for a moment, and this answer is about this event.
    if time >= S[OPEN] then S[OPEN] = time + 1 end
  elseif time > latest and not is_stamped then
    code = TOO_EARLY
  else
    if flags >= BOUNDED then code, total = check_bounds(counter, id, time, is_stamped, item, bounds_at) end
    if code == BOUND_REACHED then reached[#reached + 1] = pack('>i4I4', total[1], total[2]) end
    if code == OK then
--@include count_event
    end
  end
  if code == OK then
    totals[counter] = total
    slots[field] = slot .. record .. id
    if window > S[LATEST] then S[LATEST] = window end
    added = added + 1
  end
  codes[#codes + 1] = code
end

if added > 0 then
--@include adapt_slots
--@include write_slots
--@include write_counts
end
-- Also where nothing was added: a caller that waits for replicas must wait for the state that the reply relies on.
close_shard()
return {OK, now, stamp, added == #codes and '' or string.char(unpack(codes)), table.concat(reached)}
