#!lua flags=allow-oom
-- acquire: takes a partition over, unless another process has its lease (V3).
-- KEYS log state   ARGV now_ms (lib/clock), holder, lease_ms (no owner gets a longer one)
-- RETURNS {OK, epoch, position, settled, late_settled} | {HELD, for_ms}
-- WHY each takeover has a new epoch: what an earlier owner still sends is refused, also if it is of the same process.
-- WHY a longer remaining time is cut to lease_ms: the lease was granted under a clock that was set back since, or by an
-- earlier primary with another clock. A live owner renews it in time, so it keeps its partition.
--@include clock
local lease_ms = tonumber(ARGV[3])
local holder, expires_ms, epoch, position, settled, late_settled =
  unpack(redis.call('HMGET', K_STATE, 'holder', 'expires_ms', 'epoch', 'position', 'settled', 'late_settled'))
local left_ms = tonumber(expires_ms or '0') - now
if holder and holder ~= ARGV[2] and left_ms > 0 then
  if left_ms > lease_ms then
    left_ms = lease_ms
    redis.call('HSET', K_STATE, 'expires_ms', now + lease_ms)
  end
  return {HELD, left_ms}
end
epoch = tonumber(epoch or '0') + 1
redis.call('HSET', K_STATE, 'holder', ARGV[2], 'expires_ms', now + lease_ms, 'epoch', epoch)
return {OK, epoch, position or '0-0', settled or '0-0', late_settled or '0-0'}
