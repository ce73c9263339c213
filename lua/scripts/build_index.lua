#!lua
-- build_index: one bounded step of building a filter index over the messages that are older than the index (Q8).
-- KEYS all of the shard   ARGV head, position of the index (1 byte), scan cursor
-- RETURNS {OK, scan cursor (0: done)}
--@include shard
--@include record
--@include exclusive
--@include index
local index = indexes[byte(ARGV[5])]
local page = call('HSCAN', K_BODY, ARGV[6], 'COUNT', 100)
for i = 1, #page[2], 2 do
  local m = load_message(page[2][i])
  local tuple = m and tuple_of(index, metadata_of(m.fixed))
  if tuple and call('SADD', index.covered, m.id) == 1 then
    count_in_index(index, tuple, m.state, 1)
    if m.state == PENDING then add_to_order(index, tuple, m.fixed, member_of(m)) end
  end
end
return {OK, page[1]}
