#!lua flags=no-writes
-- depth: counts by state of what passes one filter (Q9). ARGV head, position of its index (1 byte), tuple.
-- RETURNS {OK, six counts}
--@include shard
--@include record
--@include index
local fields = {}
for state = 1, 6 do fields[state] = ARGV[6] .. char(state) end
local counts = call('HMGET', indexes[byte(ARGV[5])].counts, unpack(fields))
local reply = {OK}
for state = 1, 6 do reply[state + 1] = tonumber(counts[state] or 0) end
return reply
