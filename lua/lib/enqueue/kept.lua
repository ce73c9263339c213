-- enqueue/kept: the exclusivity values that a closed shard keeps (Q17): those of which it has a message that has not completed. All
-- messages of such a value meet here; any other value is for a later shard, for good (docs/decisions/0270).
-- The index of the exclusivity key counts messages by value and state. A closed shard without this index is empty.
local closed = byte(ARGV[3]) >= 8
-- value → whether it is kept; nil: not known yet.
local kept = {}

local function read_kept(contents)
  local _, _, _, at = options_of(contents[1])
  local exclusivity_key = sub(contents[1], at + 1, at + byte(contents[1], at))
  local counts
  for _, index in ipairs(indexes) do
    if #index.names == 1 and index.names[1] == exclusivity_key and not index.building then counts = index.counts end
  end
  for state = INVISIBLE, ERRORED do
    if not counts and S[COUNT + state] > 0 then
      error('a closed shard lacks the index of its values; declare one over the exclusivity key')
    end
  end
  local fields = {}
  for _, content in ipairs(contents) do
    local value = value_of(content)
    if kept[value] == nil then
      kept[value] = false
      for state = INVISIBLE, ERRORED do
        if state ~= COMPLETED then fields[#fields + 1] = char(#value) .. value .. char(state) end
      end
    end
  end
  if not counts or #fields == 0 then return end
  for i, count in ipairs(call('HMGET', counts, unpack(fields))) do
    if count then kept[sub(fields[i], 2, -2)] = true end
  end
end

-- Whether a message that is not here is for a later shard.
local function moves(content)
  if not closed or not exclusive then return closed end
  local value = value_of(content)
  if kept[value] == nil then read_kept({content}) end
  return not kept[value]
end
