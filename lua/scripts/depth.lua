#!lua flags=no-writes
-- depth: counts the messages that pass one filter, by state (Q9).
-- KEYS all of the shard   ARGV head, position of the filter's index (1 byte), tuple
-- RETURNS {OK, then the count of each of the six states}
--@include shard
--@include record
--@include index
local fields = {}
for state = 1, 6 do fields[state] = ARGV[6] .. char(state) end
local counts = call('HMGET', indexes[byte(ARGV[5])].counts, unpack(fields))
local reply = {OK}
for state = 1, 6 do reply[state + 1] = tonumber(counts[state] or 0) end
return reply
