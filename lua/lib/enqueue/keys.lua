-- enqueue/keys: does for all fresh messages of an Enqueue what lib/exclusive does for one. `keys` caches the entries of
-- their exclusivity values, place_fresh changes them, and write_keys writes the changes with one call per structure.
local ZERO = '0' -- a score as text: Redis would format a Lua number again for every member
-- value → {kind, waiting, rest}, as get_key returns them.
local keys = {}
-- Not yet written: members to add to ready (a set), values with changes, members to remove from ready, backlog entries.
local heads_added, keys_changed, heads_removed, backlog_added = {}, {}, {}, {}

local function load_keys(items)
  local values, seen = {}, {}
  for i = 1, items do
    local value = value_of(ARGV[5 + 2 * i])
    if not seen[value] then seen[value], values[#values + 1] = true, value end
  end
  local present, members = {}, {}
  for i, raw in ipairs(call('HMGET', K_KEYS, unpack(values))) do
    if raw then
      local n = #present + 1
      present[n], members[n] = {waiting = unpick('>I4', raw)}, sub(raw, 5)
      present[n].rest, keys[values[i]] = members[n], present[n]
    end
  end
  if #members > 0 then
    for i, score in ipairs(call('ZMSCORE', K_READY, unpack(members))) do
      present[i].kind = score and FREE or LOCKED
    end
  end
end

-- Another change of this call has written the entry of this value.
local function reload_key(value)
  local kind, waiting, rest = get_key(value)
  keys[value] = kind and {kind = kind, waiting = waiting, rest = rest}
end

local function place_fresh(value, member)
  local key = keys[value]
  if not key then
    key = {kind = FREE, waiting = 0, rest = member}
    keys[value], heads_added[member] = key, true
    became_ready = became_ready + 1
  else
    if key.kind == FREE then became_ready = became_ready + 1 end
    if key.kind == FREE and before(member, key.rest) then
      if heads_added[key.rest] then heads_added[key.rest] = nil else heads_removed[#heads_removed + 1] = key.rest end
      heads_added[member] = true
      member, key.rest = key.rest, member
    end
    backlog_added[#backlog_added + 1] = ZERO
    backlog_added[#backlog_added + 1] = backlog_prefix(value) .. member
    key.waiting = key.waiting + 1
  end
  keys_changed[value] = key
end

local function write_keys()
  local adds, sets = {}, {}
  for member in pairs(heads_added) do adds[#adds + 1] = ZERO; adds[#adds + 1] = member end
  for value, key in pairs(keys_changed) do
    sets[#sets + 1] = value
    sets[#sets + 1] = pack('>I4', key.waiting) .. key.rest
  end
  if #heads_removed > 0 then call('ZREM', K_READY, unpack(heads_removed)) end
  if #adds > 0 then call('ZADD', K_READY, unpack(adds)) end
  if #backlog_added > 0 then call('ZADD', K_BACKLOG, unpack(backlog_added)) end
  if #sets > 0 then call('HSET', K_KEYS, unpack(sets)) end
  heads_added, keys_changed, heads_removed, backlog_added = {}, {}, {}, {}
end
