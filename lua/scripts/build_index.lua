#!lua
-- build_index: one bounded step of building a filter index over the messages that are older than the index (Q8).
-- KEYS all of the shard   ARGV head, position of the index (1 byte), scan cursor
-- RETURNS {OK, scan cursor (0: done)}
-- WHY one command for many messages: with one for each, a build takes twice as long.
--@include shard
--@include record
--@include exclusive
--@include index
local STEP = 250
local index = indexes[byte(ARGV[5])]
local page = call('HSCAN', K_BODY, ARGV[6], 'COUNT', STEP)

local ids, bodies = {}, {}
for i = 1, #page[2], 2 do
  local id = page[2][i]
  -- A scan may show a message twice.
  if not bodies[id] then ids[#ids + 1] = id end
  bodies[id] = page[2][i + 1]
end

local new, counts, order = {}, {}, {}
local known = #ids > 0 and call('SMISMEMBER', index.covered, unpack(ids))
local heads = #ids > 0 and call('HMGET', K_HEAD, unpack(ids))
for i, id in ipairs(ids) do
  if known[i] == 0 then
    local body, m = bodies[id], heads[i] and decode_head(id, heads[i])
    local fixed = m and m.fixed or fixed_of_body(body)
    local tuple = tuple_of(index, metadata_of(fixed))
    if tuple then
      new[#new + 1] = id
      local field = tuple .. char(m and m.state or PENDING)
      counts[field] = (counts[field] or 0) + 1
      if not m or m.state == PENDING then
        local member = m and member_of(m) or sub(fixed, 1, 8) .. sub(body, 1, 7) .. id
        if exclusive then
          add_to_order(index, tuple, fixed, member)
        else
          order[#order + 1], order[#order + 2] = 0, 'R' .. tuple .. member
        end
      end
    end
  end
end
if #new > 0 then call('SADD', index.covered, unpack(new)) end
for field, count in pairs(counts) do call('HINCRBY', index.counts, field, count) end
if #order > 0 then call('ZADD', index.order, unpack(order)) end
return {OK, page[1]}
