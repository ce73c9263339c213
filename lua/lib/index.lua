-- index: filtered order and filtered counts (Q8, Q9). An index is over one set of metadata keys, not over its subsets.
-- It is a sorted set, a hash of counts, and, while it is built, what it covers: the ids in a set, and the pending messages up to
-- the member `covered_to`, which build_index has passed.
-- `tuple` is the values of its keys, each behind its length.
--   R tuple member         simple: every pending message; exclusive: the head of each (tuple, value)
--   B tuple value member   exclusive: every pending message
-- A head that is found locked moves from R to parked (P value slot tuple) until its value is free: each (tuple, value)
-- has its head either in R or in parked. U value: the value is free, but has more parked heads than one call restores.
local indexes = {}
do
  local count, at = unpick('B', ARGV[3], parameters_end)
  for i = 1, count do
    local slot, building, names
    slot, building, names, at = unpick('BBB', ARGV[3], at)
    local index = {slot = char(slot), building = building == 1, names = {},
      order = KEYS[FIRST_INDEX_KEY + 4 * (i - 1)], counts = KEYS[FIRST_INDEX_KEY + 4 * (i - 1) + 1],
      covered = KEYS[FIRST_INDEX_KEY + 4 * (i - 1) + 2], covered_to = KEYS[FIRST_INDEX_KEY + 4 * (i - 1) + 3]}
    for n = 1, names do index.names[n], at = unpick('Bc0', ARGV[3], at) end
    indexes[i] = index
  end
end

-- How many of `count` messages one call moves: fewer where each changes many indexes.
local function share_of(count)
  return math.ceil(count / (1 + math.floor(#indexes / 4)))
end

local function metadata_of(fixed)
  local pairs_found = {}
  local _, _, _, at = options_of(fixed)
  while at <= #fixed do
    local key, value
    key, value, at = unpick('Bc0Bc0', fixed, at)
    pairs_found[key] = value
  end
  return pairs_found
end

-- nil if the message lacks one of the keys.
local function tuple_of(index, metadata)
  local tuple = ''
  for _, name in ipairs(index.names) do
    local value = metadata[name]
    if not value then return nil end
    tuple = tuple .. char(#value) .. value
  end
  return tuple
end

local function add_to_order(index, tuple, fixed, member)
  if exclusive then
    local value = value_of(fixed)
    local prefix = 'B' .. tuple .. char(#value) .. value
    local head = first(index.order, prefix)
    call('ZADD', index.order, 0, prefix .. member)
    if head then
      head = sub(head, #prefix + 1)
      if not before(member, head) then return end
      call('ZREM', index.order, 'R' .. tuple .. head)
    end
  end
  call('ZADD', index.order, 0, 'R' .. tuple .. member)
end

local function remove_from_order(index, tuple, fixed, member)
  local was_head = call('ZREM', index.order, 'R' .. tuple .. member) == 1
  if not exclusive then return end
  local value = value_of(fixed)
  local prefix = 'B' .. tuple .. char(#value) .. value
  call('ZREM', index.order, prefix .. member)
  local head = was_head and first(index.order, prefix)
  if head then call('ZADD', index.order, 0, 'R' .. tuple .. sub(head, #prefix + 1)) end
end

local function count_in_index(index, tuple, state, by)
  local field = tuple .. char(state)
  if call('HINCRBY', index.counts, field, by) == 0 then call('HDEL', index.counts, field) end
end

-- Up to which member build_index has passed the pending messages of a simple queue. ALL_PASSED is behind all of them.
local ALL_PASSED = string.rep('\255', 15)
local function passed_by_walk(index)
  index.passed = index.passed or call('GET', index.covered_to) or ''
  return index.passed
end

-- Applies one transition to every index. `member_before` and `member_after` matter if the message was or is pending.
-- An index that is being built covers only some messages: it starts to cover the others here.
local function index_move(id, fixed, from, to, member_before, member_after)
  local metadata = metadata_of(fixed)
  for _, index in ipairs(indexes) do
    local tuple = tuple_of(index, metadata)
    if tuple then
      local listed = not index.building or call('SISMEMBER', index.covered, id) == 1
      local known = listed
      if not listed and from == PENDING and passed_by_walk(index) ~= '' then
        known = not before(passed_by_walk(index), member_before)
      end
      if known and from ~= GONE then
        count_in_index(index, tuple, from, -1)
        if from == PENDING then remove_from_order(index, tuple, fixed, member_before) end
      end
      if to ~= GONE then
        if not listed then call('SADD', index.covered, id) end
        count_in_index(index, tuple, to, 1)
        if to == PENDING then add_to_order(index, tuple, fixed, member_after) end
      end
    end
  end
end

local function values_in(tuple)
  local count, at = 0, 1
  while at <= #tuple do count, at = count + 1, at + 1 + byte(tuple, at) end
  return count
end

local RESTORE_MAX = 256
local restored = 0

-- The value is free: its parked heads return to R, at most RESTORE_MAX of all values in one call.
local function restore_parked(value)
  local parked_prefix = 'P' .. char(#value) .. value
  local left = RESTORE_MAX - restored
  local parked = call('ZRANGEBYLEX', K_PARKED, '[' .. parked_prefix, '(' .. parked_prefix .. PAST, 'LIMIT', 0, left)
  restored = restored + #parked
  for _, entry in ipairs(parked) do
    local slot, tuple = sub(entry, #parked_prefix + 1, #parked_prefix + 1), sub(entry, #parked_prefix + 2)
    for _, index in ipairs(indexes) do
      -- An earlier index of this slot may have left entries here. Those with as many keys do no harm.
      if index.slot == slot and values_in(tuple) == #index.names then
        local prefix = 'B' .. tuple .. char(#value) .. value
        local head = first(index.order, prefix)
        if head then call('ZADD', index.order, 0, 'R' .. tuple .. sub(head, #prefix + 1)) end
      end
    end
  end
  if #parked > 0 then
    call('ZREM', K_PARKED, unpack(parked))
    S[PARKED] = S[PARKED] - #parked
  end
  local rest = 'U' .. char(#value) .. value
  if restored == RESTORE_MAX and first(K_PARKED, parked_prefix) then call('ZADD', K_PARKED, 0, rest)
  else call('ZREM', K_PARKED, rest) end
end
