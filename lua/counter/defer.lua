#!lua flags=allow-oom
-- defer: counters that due has returned, and for which the rollup queue has no room, fall due again after delay_ms (N9).
-- KEYS state pending dirty   ARGV now_ms revision due_after_ms delay_ms counter...
-- RETURNS {OK}
-- WHY only counters that are dirty: a rollup may have settled one meanwhile.
-- WHY the mark says again that it was never returned: the counter has no job, so the next hold is short.
--@include shard
local since = string.format('%.0f', now + tonumber(ARGV[4]) - tonumber(ARGV[3]))
local marks = {}
for i = 5, #ARGV do
  marks[#marks + 1], marks[#marks + 2] = since, ARGV[i]
end
call('ZADD', K_DIRTY, 'XX', unpack(marks))
close_shard()
return {OK}
