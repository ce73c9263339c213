#!lua flags=allow-oom
-- drop: slots of events that are in the archive go (N15).
-- KEYS state pending dirty layout archive events   ARGV now_ms revision dropped_to_ms (0: other slots follow) field...
-- RETURNS {OK, how many have gone}
-- WHY it checks each window: the store may have lost what `archived` wrote. Then their events are nowhere else.
--@include shard
local fields = {}
for i = 4, #ARGV do
  if (unpick('>I5', ARGV[i]) + 1) * WINDOW_MS <= S[PRUNED] then fields[#fields + 1] = ARGV[i] end
end
local gone = #fields > 0 and call('HDEL', KEYS[6], unpack(fields)) or 0
local dropped_to, record = tonumber(ARGV[3]), call('GET', K_ARCHIVE)
if record and dropped_to > unpick('>I6', record) and dropped_to <= S[PRUNED] then
  call('SET', K_ARCHIVE, pack('>I6', dropped_to) .. sub(record, 7))
end
return {OK, gone}
