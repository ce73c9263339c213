#!lua flags=allow-oom
-- prune: records before a time are about to be dropped (N12): events that old are no longer looked up.
-- KEYS state   ARGV now_ms revision pruned_to_ms (0: changes nothing)
-- RETURNS {OK, now_ms, pruned_to_ms}
--@include shard
S[PRUNED] = math.max(S[PRUNED], tonumber(ARGV[3]))
close_shard()
return {OK, now, S[PRUNED]}
