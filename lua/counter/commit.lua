#!lua flags=allow-oom
-- commit: replaces checkpoints by compare-and-set on exact_to_ms, unless a later lease has written (N8).
-- KEYS counts   ARGV (counter, exact_to_ms of the checkpoint before, checkpoint)...
-- checkpoint: count as high i4 and low I4, exact_to_ms I6, last_write_ms I6, lease: leased_at_ms I6, fencing token I7
-- RETURNS {OK, code...}: OK | LOST
local unpick = struct.unpack
local out, write, counters = {OK}, {}, {}
for i = 1, #ARGV, 3 do counters[#counters + 1] = ARGV[i] end
local found = redis.call('HMGET', K_COUNTS, unpack(counters))
for i = 1, #ARGV, 3 do
  local counter, expected, checkpoint = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  local before = found[(i + 2) / 3]
  local exact_to, leased_at, token = 0, 0, 0
  if before then
    local _, _, was_exact_to, _, was_leased_at, was_token = unpick(CHECKPOINT, before)
    exact_to, leased_at, token = was_exact_to, was_leased_at, was_token
  end
  local _, _, _, _, by_leased_at, by_token = unpick(CHECKPOINT, checkpoint)
  local is_older = by_leased_at < leased_at or by_leased_at == leased_at and by_token < token
  if exact_to ~= expected or is_older then
    out[#out + 1] = LOST
  else
    out[#out + 1] = OK
    write[#write + 1] = counter
    write[#write + 1] = checkpoint
  end
end
if #write > 0 then redis.call('HSET', K_COUNTS, unpack(write)) end
return out
