#!lua flags=allow-oom
-- configure: a shard of the event log acts on a revision of its namespace from now on; a new shard begins.
-- KEYS state pending dirty layout   ARGV revision. RETURNS {OK} | {STALE, revision}: it knows a later one
local raw = redis.call('GET', K_STATE)
local S = raw and {struct.unpack(LOG_STATE, raw)} or {0, 0, 0, 0, 0, 0, 0, SLOTS_MIN, 1, 0}
local revision = tonumber(ARGV[1])
if S[1] > revision then return {STALE, S[1]} end
S[1] = revision
if not raw then redis.call('SET', K_LAYOUT, struct.pack('>I5I4', 0, SLOTS_MIN)) end
redis.call('SET', K_STATE, struct.pack(LOG_STATE, unpack(S, 1, 10)))
return {OK}
