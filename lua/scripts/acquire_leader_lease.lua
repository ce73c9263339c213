#!lua flags=allow-oom
-- acquire_leader_lease: makes the caller the leader of a background job, or renews its lease.
-- KEYS lease   ARGV now_ms (lib/clock), owner, lease_ms. RETURNS 1 the caller is the leader | 0 another server is
-- WHY an expiry: when the leader dies, its lease runs out and another server takes over.
--@include clock
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[2] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
