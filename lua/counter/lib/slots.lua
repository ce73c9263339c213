-- slots: the slots that an append writes to, read with one command for each time bucket and written with another.
-- Needs counters and counts_at, read from ARGV[4].
-- A slot is one field of an events hash: the number of a window I5 and the number of a slot I4. It holds records one after
-- the other: length of the rest B, length of the delta B (0: a clear), the delta in as few bytes as hold it, the id. The delta
-- of an add with labels (N20) has more than eight bytes: length of the source B, source, item key, delta i8.
local EVENTS, ITEMS, FIRST_COUNTER = 6, 5, 6
local FIRST_FIELD = FIRST_COUNTER + counters
-- last: the number of the last field of each events hash, by the position of its key.
local fields, slots, before, last = 0, {}, {}, {}
for key = EVENTS, #KEYS do
  local n
  n, counts_at = unpick('>I2', ARGV[4], counts_at)
  local first = FIRST_FIELD + fields
  local found = call('HMGET', KEYS[key], unpack(ARGV, first, first + n - 1))
  for i = 1, n do
    local slot = found[i] or ''
    slots[fields + i], before[fields + i] = slot, slot
  end
  fields = fields + n
  last[key] = fields
end
local FIRST_ID = FIRST_FIELD + fields

-- The record of an id in a slot, or nil. The id must be the end of a record: its bytes may occur elsewhere, too.
local function recorded(slot, id)
  if not string.find(slot, id, 1, true) then return end
  local at, id_length = 1, #id
  while at <= #slot do
    local length, from = byte(slot, at), at + 2 + byte(slot, at + 1)
    if at + length + 1 - from == id_length and sub(slot, from, at + length) == id then
      return sub(slot, at, at + length)
    end
    at = at + length + 1
  end
end
