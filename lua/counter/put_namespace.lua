#!lua
-- put_namespace: replaces a namespace's configuration if its revision is still the one that the caller has read (N1).
-- KEYS namespaces   ARGV name, revision (0: it does not exist), configuration, the least that its new revision may be
-- RETURNS {OK, revision} | {STALE, revision}
-- An entry is the revision I6, then JSON.
local raw = redis.call('HGET', KEYS[1], ARGV[1])
local revision = raw and struct.unpack('>I6', raw) or 0
if revision ~= tonumber(ARGV[2]) then return {STALE, revision} end
revision = math.max(revision + 1, tonumber(ARGV[4]))
redis.call('HSET', KEYS[1], ARGV[1], struct.pack('>I6', revision) .. ARGV[3])
return {OK, revision}
