-- write_slots: a section of append: writes the slots that have changed.
do
  local first, at = 0, counts_at
  for key = EVENTS, #KEYS do
    local n
    n, at = unpick('>I2', ARGV[4], at)
    local write = {}
    for i = first + 1, first + n do
      if slots[i] ~= before[i] then
        write[#write + 1] = ARGV[FIRST_FIELD + i - 1]
        write[#write + 1] = slots[i]
      end
    end
    if #write > 0 then call('HSET', KEYS[key], unpack(write)) end
    first = first + n
  end
end
