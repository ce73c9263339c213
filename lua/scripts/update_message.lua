#!lua flags=allow-oom
-- update_message: changes priority and visibility in one write (Q7).
-- KEYS all of the shard   ARGV head, id, priority (8 bytes; '': unchanged), visible_at_ms (-1: unchanged)
-- RETURNS {OK, code(1) state(1) version(4)}
--@include shard
--@include record
--@include event
--@include exclusive
--@include index
--@include move
--@include change/update

local m = load_message(ARGV[5])
local code, state, version = NOT_FOUND, 0, 0
if m then code, state, version = update(m, ARGV[6], tonumber(ARGV[7])) end
write_events()
close_shard()
return {OK, char(code, state) .. pack('>I4', version)}
