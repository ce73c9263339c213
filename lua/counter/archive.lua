#!lua flags=allow-oom
-- archive: an archiver begins with this shard: it is sealed, and only the latest ticket may continue (N15).
-- KEYS state pending dirty layout archive   ARGV now_ms revision lag_ms ticket
-- The archive record: dropped_to_ms I6, ticket. dropped_to_ms: archived events before this time are no longer in the log
-- RETURNS {OK, now_ms, sealed_to_ms, archived_to_ms, dropped_to_ms}
-- WHY a ticket that is written with the seal: if the store has lost its last writes and with them the seal, events may come
-- behind what the archiver has read. Then the ticket is lost, too, and `archived` refuses what it has read.
--@include shard
local to = floor((now - tonumber(ARGV[3])) / WINDOW_MS) * WINDOW_MS
if to > S[SEALED_TO] then S[SEALED_TO] = to end
close_shard()
local record = call('GET', K_ARCHIVE)
local dropped_to = record and unpick('>I6', record) or 0
call('SET', K_ARCHIVE, pack('>I6', dropped_to) .. ARGV[4])
return {OK, now, S[SEALED_TO], S[PRUNED], dropped_to}
