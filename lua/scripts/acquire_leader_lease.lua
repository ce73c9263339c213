#!lua flags=allow-oom
-- acquire_leader_lease: makes the caller the leader of a background job, or renews its lease.
-- KEYS lease   ARGV owner, lease_ms. RETURNS 1 the caller is the leader | 0 another server is
-- WHY an expiry: when the leader dies, its lease runs out and another server takes over.
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
