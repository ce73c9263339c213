#!lua flags=allow-oom
-- redrive: makes errored and canceled messages pending again, with all their attempts (Q5).
-- KEYS all of the shard   ARGV head, then ids. RETURNS {OK, code(1) state(1) version(4) of each}
--@include shard
--@include record
--@include event
--@include exclusive
--@include index
--@include move
--@include change/redrive

local results = {}
for i = 1, #ARGV - 4 do
  local m = load_changed(ARGV[4 + i])
  local code, state, version = NOT_FOUND, 0, 0
  if m then code, state, version = redrive(m) end
  results[i] = char(code, state) .. pack('>I4', version)
end
write_events()
close_shard()
return {OK, table.concat(results)}
