-- count_event: a section of append, in its loop: adds the event to the sums of its counter and window. One that does not fit
-- changes nothing, and `code` becomes OVERFLOW. An add that a clear of its window removes stays out of the sum, so a read of
-- the slots is necessary only where a clear comes after an add of a later time.
-- WHY a section and no function: a function with as many upvalues costs each call of the script some microseconds.
local p = pending[counter] or read_either(counter)
pending[counter] = p
local size, closed = delta < 0 and -delta or delta, p.closed or p[CLOSED] % HAS_OLDER
local offset = time - window * WINDOW_MS
if delta > 0 and closed == CLOSED_UP or delta < 0 and closed == CLOSED_DOWN then
  code = OVERFLOW
elseif p.entries or flags % BOUNDED >= WIDE or window < p[NUMBER] or p[GROSS] + size >= EXACT then
  p = read_long(counter, p)
  pending[counter] = p
  was_clean[counter] = was_clean[counter] or #p.entries == 0 and window
  code = count_long(p, item, window, offset, is_clear)
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
    if offset >= p[FINAL] then p[SUM], p[FIRST], p[FINAL] = 0, 65535, 0 end
  else
    p[SIZE], p[GROSS] = p[SIZE] + size, p[GROSS] + size
    if offset >= p[CLEARED] then
      p[SUM] = p[SUM] + delta
      if offset < p[FIRST] then p[FIRST] = offset end
      if offset > p[FINAL] then p[FINAL] = offset end
    end
  end
  if time > p[LAST_WRITE] then p[LAST_WRITE] = time end
  p[CHANGED] = true
end
