#!lua flags=allow-oom
-- region_term: a term of the one process that publishes and merges regions begins, or its lease is renewed (N12).
-- KEYS lease   ARGV term, lease_ms, '1': it begins, '0': its lease is renewed
-- RETURNS {OK} | {LOST}: another term has the lease; or this one's lease is over, and another one may have begun and ended
-- WHY a lease that is over is not renewed: what this term has read before could be stored after what another one has stored.
local term = redis.call('GET', KEYS[1])
if term ~= ARGV[1] and (term or ARGV[3] == '0') then return {LOST} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {OK}
