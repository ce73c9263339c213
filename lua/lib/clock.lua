-- clock: the store's time, with the caller's clock as its witness (X6).
-- ARGV now_ms, one of: 0: Redis TIME | a number: a test's own clock | 'W', sent_ms I6, skew_max_ms I4, timeline(4), and what
--      lib/timeline reads: Redis TIME, which may differ from sent_ms by skew_max_ms at most (0: by any time)
-- RETURNS from the including script: {-1, now_ms} if it differs by more, before anything else is read or written
-- WHY the script refuses a call that has waited for long, too: only its caller can know that (infra/link/src/clock.rs).
-- now_max: the latest time that any clock within the bound shows now, by this caller's clock.
local now, micros = tonumber(ARGV[1]), 0
local now_max, skew_max_ms = now, 0
if not now or now == 0 then
  local has_witness, time = not now, redis.call('TIME')
  now, micros = time[1] * 1000 + math.floor(time[2] / 1000), time[2] % 1000
  now_max = now
  if has_witness then
    local sent_ms
    sent_ms, skew_max_ms = struct.unpack('>I6I4', ARGV[1], 2)
    if skew_max_ms > 0 and math.abs(now - sent_ms) > skew_max_ms then return {-1, now} end
    if skew_max_ms > 0 then now_max = sent_ms + skew_max_ms end
  end
end
