#!lua flags=allow-oom
-- merged: stores how far the topics of other regions are merged, and into which namespaces (N12).
-- KEYS positions lease   ARGV term, '1': forget all that stood, '0': only what is named, number of fields to forget, field...,
-- (field, what stood there when the caller read it ('': nothing, '*': this does not matter), value)...
-- RETURNS {OK} | {LOST}: this term has lost its lease, and nothing has changed
-- WHY the lease is compared here: a process that stood still could store a position from before the topics were begun again for
-- a namespace, and records that this namespace lacks would be skipped for good.
-- WHY what stood is compared: put_namespace removes the field of a namespace that gets other regions, or none. If it has them again
-- when the caller comes, the field must not say that nothing was missed. A field that has changed stays as it is.
local key, gone, write = KEYS[1], tonumber(ARGV[3]), {}
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return {LOST} end
for i = 4 + gone, #ARGV, 3 do
  local stands = redis.call('HGET', key, ARGV[i]) or ''
  local is_same = ARGV[i + 1] == '*' or ARGV[i + 1] == stands
  write[#write + 1] = ARGV[i]
  write[#write + 1] = is_same and ARGV[i + 2] or stands
end
if ARGV[2] == '1' then redis.call('DEL', key) end
for i = 4, 3 + gone do redis.call('HDEL', key, ARGV[i]) end
for i = 1, #write, 2 do
  if write[i + 1] ~= '' then redis.call('HSET', key, write[i], write[i + 1]) end
end
return {OK}
