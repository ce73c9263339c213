#!lua flags=allow-oom
-- configure: a shard of the event log follows a revision of its namespace from now on; it is created if it is not there.
-- KEYS state pending dirty layout   ARGV now_ms (lib/clock) revision
-- RETURNS {OK} | {STALE, revision}: it follows a later one
--@include clock
local raw = redis.call('GET', K_STATE)
local S = raw and {struct.unpack(LOG_STATE, raw)} or {0, 0, 0, 0, 0, 0, 0, SLOTS_MIN, 1, 0, 0, 0}
local revision = tonumber(ARGV[2])
if S[1] > revision then return {STALE, S[1]} end
S[1] = revision
if not raw then
  redis.call('SET', K_LAYOUT, struct.pack('>I5I4', 0, SLOTS_MIN))
  -- No event can be older, so retention begins here.
  S[11] = math.max(0, now - ACCEPT_MS_MAX)
end
redis.call('SET', K_STATE, struct.pack(LOG_STATE, unpack(S, 1, 12)))
return {OK}
