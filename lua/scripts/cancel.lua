#!lua flags=allow-oom
-- cancel: cancels messages (Q5, Q10).
-- KEYS all of the shard   ARGV head, then id, fencing token (0: none), force (0 | 1), reason of each item
-- RETURNS {OK, code(1) state(1) version(4) of each item}
--@include shard
--@include record
--@include event
--@include exclusive
--@include index
--@include move
--@include change/cancel

local results = {}
for i = 1, (#ARGV - 4) / 4 do
  local m = load_message(ARGV[1 + 4 * i])
  local code, state, version = NOT_FOUND, 0, 0
  if m then code, state, version = cancel(m, tonumber(ARGV[2 + 4 * i]), ARGV[3 + 4 * i] == '1', ARGV[4 + 4 * i]) end
  results[i] = char(code, state) .. pack('>I4', version)
end
write_events()
close_shard()
return {OK, table.concat(results)}
