#!lua flags=allow-oom
-- prune: records before a time are about to be dropped (N12): events that old are no longer looked up.
-- KEYS state pending dirty layout kept   ARGV now_ms revision pruned_to_ms (0: changes nothing) kept_from_ms, bucket...
-- bucket: it is before pruned_to_ms, but an event in it waits for its rollup, so its records stay
-- kept_from_ms: no record before this time is needed any more, not even by a late rollup
-- RETURNS {OK, now_ms, pruned_to_ms}
--@include shard
S[PRUNED] = math.max(S[PRUNED], tonumber(ARGV[3]))
if #ARGV > 4 then call('SADD', K_KEPT, unpack(ARGV, 5)) end
local layout, kept_from = call('GET', K_LAYOUT), tonumber(ARGV[4])
local first = 1
while first + 9 < #layout and unpick('>I5', layout, first + 9) * WINDOW_MS <= kept_from do first = first + 9 end
-- The version stays: windows that can still get an event are laid out as before.
if first > 1 then call('SET', K_LAYOUT, sub(layout, first)) end
close_shard()
return {OK, now, S[PRUNED]}
