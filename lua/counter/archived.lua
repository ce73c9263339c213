#!lua flags=allow-oom
-- archived: events before a time are in the archive, and are found there from now on (N15).
-- KEYS state pending dirty layout archive   ARGV now_ms revision ticket archived_to_ms
-- archived_to_ms: everything before it is sealed and settled
-- RETURNS {OK} | {LOST}: another archiver has begun since, or the store has lost its last writes; nothing has changed
--@include shard
local record = call('GET', K_ARCHIVE)
if not record or sub(record, 7) ~= ARGV[3] then return {LOST} end
S[PRUNED] = math.max(S[PRUNED], tonumber(ARGV[4]))
local layout, first = call('GET', K_LAYOUT), 1
while first + 9 < #layout and unpick('>I5', layout, first + 9) * WINDOW_MS <= S[PRUNED] do first = first + 9 end
-- The version stays: windows that can still get an event are laid out as before.
if first > 1 then call('SET', K_LAYOUT, sub(layout, first)) end
close_shard()
return {OK}
