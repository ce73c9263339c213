-- build_index/tuple: the tuple of a message, from its record.
local wanted, has_length, names_wanted = {}, {}, #index.names
for i, name in ipairs(index.names) do wanted[name], has_length[#name] = i, true end
local found_values = {}

-- What tuple_of returns, for the metadata of the fixed that begins at `from` in a record.
-- WHY not from metadata_of: it makes a table and all strings of a message that has passed nothing yet.
local function tuple_in(record, from)
  local high, low = byte(record, from + 8, from + 9)
  local last, found = from + 9 + high * 256 + low, 0
  if last < from + 10 then return nil end
  local at = from + 11
  if byte(record, from + 10) > 0 then at = select(4, options_of(record, from)) end
  while at <= last do
    local length = byte(record, at)
    local to = at + 1 + length
    local value_length = byte(record, to)
    local position = has_length[length] and wanted[sub(record, at + 1, to - 1)]
    if position then
      found_values[position], found = sub(record, to, to + value_length), found + 1
    end
    at = to + 1 + value_length
  end
  if found == names_wanted then return found == 1 and found_values[1] or table.concat(found_values) end
end
