#!lua
-- put_namespace: replaces a namespace's configuration if the namespace is still what the caller has read (N1).
-- KEYS namespaces
-- ARGV name, revision (0: it does not exist), configuration, the least that its new revision may be, incarnation
-- RETURNS {OK, revision, incarnation} | {STALE, revision}
--@include registry
local registry, name = KEYS[1], ARGV[1]
local raw = redis.call('HGET', registry, name)
local revision, incarnation = 0, tonumber(ARGV[5])
if raw then
  revision, incarnation = read_entry(raw)
elseif ARGV[2] == '0' then
  -- No data of a deleted namespace of this name can reach it (N14).
  incarnation = tonumber(redis.call('HGET', registry, INCARNATION_FIELD) or '0')
end
if revision ~= tonumber(ARGV[2]) or raw and incarnation ~= tonumber(ARGV[5]) then return {STALE, revision} end
revision = math.max(revision + 1, tonumber(ARGV[4]))
local entry = struct.pack('>I6', revision) .. (incarnation > 0 and '#' .. struct.pack('>I6', incarnation) or '')
redis.call('HSET', registry, name, entry .. ARGV[3])
return {OK, revision, incarnation}
