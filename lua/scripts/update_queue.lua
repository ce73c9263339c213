#!lua flags=allow-oom
-- update_queue: replaces the configuration of the given revision (Q2), and deletes the structures of filter indexes
-- that the new one does not have.
-- KEYS all of the shard, then the structures to delete   ARGV head, configuration, number of KEYS to keep,
--      whether remembered ids are forgotten (0, 1), where the queue has other shards than before: 1
-- RETURNS {OK, configuration, state}
--@include shard
call('SET', K_CONFIG, ARGV[5])
for i = tonumber(ARGV[6]) + 1, #KEYS do call('UNLINK', KEYS[i]) end
S[1] = S[1] + 1
-- A new epoch (lib/ids). Sweeps delete the records.
if ARGV[7] == '1' and #call('ZRANGE', K_REQUEST_DUE, 2 * FAR, '+inf', 'BYSCORE', 'LIMIT', 0, 1) > 0 then
  call('HSET', K_REQUESTS, '\2', pack('>I4', S[1] % 2 ^ 32))
end
note_due(now) -- wakes the sweeper: the retention may be shorter
-- No script of a new shard knows the servers that wait.
if ARGV[8] then call('PUBLISH', WAKE_CHANNEL, K_STATE) end
close_shard()
return {OK, ARGV[5], call('GET', K_STATE)}
