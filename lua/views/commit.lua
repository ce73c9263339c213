#!lua flags=allow-oom
-- commit: moves the position of a partition past views that were deduplicated, with what they have added (V3).
-- KEYS log state deltas late pairs…
-- ARGV now_ms (lib/clock), lease_ms, epoch, from, to, keep_from (log), deltas ('': none), full (1: the owner has no memory for
--      more pairs, 0, '': as before), replaced (ids of records whose deltas are among these, with spaces between), then for each
--      key of pairs: keep_from, pairs ('': none)
-- RETURNS {OK, id of the record of deltas} | {OK}: no deltas, or a repetition | {FENCED}: another process owns the partition
-- WHY a commit from `to` is OK: it is a repetition, because only the owner of this epoch moves the position. With from = to
-- it only renews the lease. Pairs have the id of `to`, which is no earlier than their times, whatever Redis's clock does.
-- WHY a replaced record counts once: the owner of this epoch has written it, and no process has sent it.
--@include clock
local epoch, position = unpack(redis.call('HMGET', K_STATE, 'epoch', 'position'))
if epoch ~= ARGV[3] then return {FENCED} end
redis.call('HSET', K_STATE, 'expires_ms', now + tonumber(ARGV[2]))
if ARGV[8] ~= '' then redis.call('HSET', K_STATE, 'full', ARGV[8] == '1' and epoch or '') end
if ARGV[4] == ARGV[5] or position == ARGV[5] then return {OK} end
if (position or '0-0') ~= ARGV[4] then return {FENCED} end
for id in string.gmatch(ARGV[9], '%S+') do redis.call('XDEL', K_DELTAS, id) end
redis.call('HSET', K_STATE, 'position', ARGV[5])
redis.call('XTRIM', K_LOG, 'MINID', ARGV[6])
local reply = {OK}
if ARGV[7] ~= '' then reply[2] = redis.call('XADD', K_DELTAS, '*', 'd', ARGV[7]) end
for number = 5, #KEYS do
  local keep_from, pairs = ARGV[number * 2], ARGV[number * 2 + 1]
  redis.call('XTRIM', KEYS[number], 'MINID', '~', keep_from)
  if pairs ~= '' then redis.call('XADD', KEYS[number], ARGV[5], 'p', pairs) end
end
return reply
