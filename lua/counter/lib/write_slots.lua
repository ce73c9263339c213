-- write_slots: a section of append: writes the slots that have changed.
for key = EVENTS, #KEYS do
  local write = {}
  for i = (last[key - 1] or 0) + 1, last[key] do
    if slots[i] ~= before[i] then
      write[#write + 1] = ARGV[FIRST_FIELD + i - 1]
      write[#write + 1] = slots[i]
    end
  end
  if #write > 0 then call('HSET', KEYS[key], unpack(write)) end
end
