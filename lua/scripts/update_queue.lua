#!lua flags=allow-oom
-- update_queue: put a configuration in place of the one of the given revision (Q2), and drop the structures of
-- filter indexes that it no longer has. KEYS past the head's are theirs, to unlink.
-- ARGV head, configuration, KEYS to keep. RETURNS {OK, configuration, state}
--@include shard
call('SET', K_CONFIG, ARGV[5])
for i = tonumber(ARGV[6]) + 1, #KEYS do call('UNLINK', KEYS[i]) end
S[1] = S[1] + 1
note_due(now) -- the sweeper looks again: the retention may be shorter
close_shard()
return {OK, ARGV[5], call('GET', K_STATE)}
