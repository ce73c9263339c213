#!lua flags=allow-oom
-- delete_namespace: a namespace leaves the registry; a separate field has its entry until its data is gone, too (N14).
-- KEYS namespaces   ARGV now_ms (lib/clock), name, its incarnation or '' for any
-- RETURNS {OK, incarnation, entry of the deleted namespace: when it was deleted I6, 0 B, the entry as it stood} | {LOST}
-- WHY the next incarnation is a number of the whole registry: nothing has to be kept of each deleted name.
--@include clock
--@include registry
local registry, name, wanted = KEYS[1], ARGV[2], ARGV[3]
local raw = redis.call('HGET', registry, name)
if raw then
  local _, incarnation = read_entry(raw)
  if wanted == '' or tonumber(wanted) == incarnation then
    local entry = struct.pack('>I6B', now, 0) .. raw
    redis.call('HSET', registry, DELETED_FIELD .. name .. ':' .. string.format('%.0f', incarnation), entry)
    redis.call('HINCRBY', registry, INCARNATION_FIELD, '1')
    redis.call('HDEL', registry, name, INCARNATION_FIELD .. name)
    return {OK, incarnation, entry}
  end
end
-- A repetition: the namespace was deleted a moment ago.
local entry = wanted ~= '' and redis.call('HGET', registry, DELETED_FIELD .. name .. ':' .. wanted)
if entry then return {OK, tonumber(wanted), entry} end
return {LOST}
