#!lua
-- build_index: one bounded step of building a filter index over the messages that are older than the index (Q8).
-- KEYS all of the shard   ARGV head, position of the index (1 byte), scan cursor ('0' at first), how many chunks at most
-- RETURNS {OK, scan cursor ('0': done, '-': the scan has not begun)}
-- A simple queue: first a walk over the ready messages in their order, which each step of any server continues at
-- `covered_to`; then a scan over the heads for the messages that are not pending. An exclusive queue: a scan over the bodies.
-- WHY the walk: the entries of one list come in its order, and finding their place is what costs a sorted set most; and
-- what it passes needs no entry in `covered` (lib/index). WHY one command for many messages: fewer calls.
--@include shard
--@include record
--@include exclusive
--@include index
-- BYTES_MAX: of bodies; a step ends with the chunk that exceeds it.
local CHUNK, BYTES_MAX = 250, 2 ^ 20
local index = indexes[byte(ARGV[5])]
local cursor, bytes = ARGV[6] == '-' and '0' or ARGV[6], 0

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

local function add_counts(counts)
  for field, count in pairs(counts) do call('HINCRBY', index.counts, field, count) end
end

-- The next ready messages behind the member `from`.
local function walk(from)
  local page = call('ZRANGEBYLEX', K_READY, '(' .. from, '+', 'LIMIT', '0', CHUNK)
  if #page > 0 then
    local ids, counts, order, n = {}, {}, {}, 0
    for i, member in ipairs(page) do ids[i] = sub(member, 16) end
    local known = call('SMISMEMBER', index.covered, unpack(ids))
    for i, body in ipairs(call('HMGET', K_BODY, unpack(ids))) do
      bytes = bytes + #body
      local tuple = known[i] == 0 and tuple_in(body, 14)
      if tuple then
        counts[tuple] = (counts[tuple] or 0) + 1
        order[n + 1], order[n + 2], n = '0', 'R' .. tuple .. page[i], n + 2
      end
    end
    if n > 0 then call('ZADD', index.order, unpack(order)) end
    local fields = {}
    for tuple, count in pairs(counts) do fields[tuple .. char(PENDING)] = count end
    add_counts(fields)
  end
  index.passed = #page == CHUNK and page[CHUNK] or ALL_PASSED
  call('SET', index.covered_to, index.passed)
end

local function scan()
  local page = call('HSCAN', exclusive and K_BODY or K_HEAD, cursor, 'COUNT', CHUNK)
  local ids, records = {}, {}
  for i = 1, #page[2], 2 do
    local id = page[2][i]
    -- A scan may show a message twice.
    if not records[id] then ids[#ids + 1] = id end
    records[id] = page[2][i + 1]
    bytes = bytes + #page[2][i + 1]
  end
  cursor = page[1]
  if #ids == 0 then return end
  local known = call('SMISMEMBER', index.covered, unpack(ids))
  local heads = exclusive and call('HMGET', K_HEAD, unpack(ids)) or {}
  local new, counts = {}, {}
  for i, id in ipairs(ids) do
    local body, head = records[id], heads[i]
    if not exclusive then head = body end
    local state = head and byte(head) or PENDING
    -- The walk has passed what is pending.
    if known[i] == 0 and (exclusive or state ~= PENDING) then
      local record, at = head or body, head and fixed_at(head) or 14
      local tuple = tuple_in(record, at)
      if tuple then
        new[#new + 1] = id
        local field = tuple .. char(state)
        counts[field] = (counts[field] or 0) + 1
        if state == PENDING then
          local seq7 = head and sub(head, 52, 58) or sub(body, 1, 7)
          add_to_order(index, tuple, sub(record, at), sub(record, at, at + 7) .. seq7 .. id)
        end
      end
    end
  end
  if #new > 0 then call('SADD', index.covered, unpack(new)) end
  add_counts(counts)
end

local answer = '-'
-- WHY one chunk of an exclusive queue: its order takes several commands for each message.
for _ = 1, exclusive and 1 or tonumber(ARGV[7]) do
  local from = exclusive and ALL_PASSED or passed_by_walk(index)
  if from ~= ALL_PASSED then walk(from)
  else
    scan()
    answer = cursor
    if cursor == '0' then break end
  end
  if bytes > BYTES_MAX then break end
end
return {OK, answer}
