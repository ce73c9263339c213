#!lua
-- put_namespace: replaces a namespace's configuration if the namespace is still what the caller has read (N1).
-- KEYS namespaces positions (merged)
-- ARGV now_ms (lib/clock), name, revision (0: it does not exist), configuration, the least that its new revision may be,
--      incarnation, its field of the positions, or '' if its regions stay, how old the events are at most that the retention has
--      kept until now, in ms, if it keeps older ones from now on; else ''
-- RETURNS {OK, revision, incarnation, kept_from_ms (lib/registry)} | {STALE, revision}
-- WHY the positions forget a namespace whose regions change: with other regions, or none, its counters are not put behind and
-- records of it are skipped. If it gets the same ones again, all must be published and merged from the beginning (N12).
-- WHY records have a time as their incarnation: that of the namespace begins at 0 again in a store that was built again, and other
-- regions would leave out its records for ever (docs/decisions/0288). Where the clock is behind, it is still later than the last one.
-- WHY the time since when a namespace exists falls: it may have been set under a clock that was ahead, and earlier events may follow.
--@include clock
--@include registry
local registry, name = KEYS[1], ARGV[2]
local origin, latest_field = INCARNATION_FIELD .. name, INCARNATION_FIELD .. INCARNATION_FIELD
local raw = redis.call('HGET', registry, name)
local revision, incarnation, kept_from = 0, tonumber(ARGV[6]), 0
if raw then
  revision, incarnation, kept_from = read_entry(raw)
elseif ARGV[3] == '0' then
  -- No data of a deleted namespace of this name can reach it (N14).
  incarnation = tonumber(redis.call('HGET', registry, INCARNATION_FIELD) or '0')
end
if revision ~= tonumber(ARGV[3]) or raw and incarnation ~= tonumber(ARGV[6]) then return {STALE, revision} end
revision = math.max(revision + 1, tonumber(ARGV[5]))
-- What is dropped does not come back when events are kept for longer.
-- WHY not later than now: it may have been set under a clock that was ahead, and would forbid recounts until then.
if ARGV[8] ~= '' then kept_from = math.max(kept_from, now - tonumber(ARGV[8])) end
kept_from = math.min(kept_from, now)
local function field(mark, number) return number > 0 and mark .. struct.pack('>I6', number) or '' end
local entry = struct.pack('>I6', revision) .. field('#', incarnation) .. field('<', kept_from)
redis.call('HSET', registry, name, entry .. ARGV[4])
if not raw then
  local record_incarnation = math.max(now, tonumber(redis.call('HGET', registry, latest_field) or '0') + 1)
  redis.call('HSET', registry, latest_field, string.format('%.0f', record_incarnation))
  redis.call('HSET', registry, origin, struct.pack('>I6I6I6', incarnation, record_incarnation, now))
else
  local found = redis.call('HGET', registry, origin)
  local since = found and select(3, struct.unpack('>I6I6I6', found)) or 0
  if since > now then redis.call('HSET', registry, origin, string.sub(found, 1, 12) .. struct.pack('>I6', now)) end
end
if ARGV[7] ~= '' then redis.call('HDEL', KEYS[2], ARGV[7]) end
return {OK, revision, incarnation, kept_from}
