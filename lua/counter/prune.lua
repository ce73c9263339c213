#!lua flags=allow-oom
-- prune: records before a time are about to go (N12): from now on nobody is told whether one of them was counted.
-- KEYS state   ARGV now_ms revision pruned_to_ms (0: only asks)
-- RETURNS {OK, now_ms, pruned_to_ms}
--@include shard
S[PRUNED] = math.max(S[PRUNED], tonumber(ARGV[3]))
close_shard()
return {OK, now, S[PRUNED]}
