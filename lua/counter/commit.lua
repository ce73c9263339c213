#!lua flags=allow-oom
-- commit: replaces checkpoints by compare-and-set, unless a later lease has written (N8).
-- KEYS counts deleted state recounts crossings pending dirty [behind (lib/regions)]
-- ARGV now_ms, revision (lib/home), (counter, what stands (lib/home; '0': no checkpoint), checkpoint, crossings (lib/crossings))...
-- RETURNS {OK, code...}: OK | LOST
-- WHY no first checkpoint that is old: the marks of deleted counters go in the end (forget), and then a rollup that began
-- before the deletion and stood still since would pass as the first. Only a standstill makes a rollup so late.
-- WHY no counter expires while events of it are pending here: an ACCURATE count that was read between the seal and this call
-- would have held both the old adds and the new ones, and a conditional add would have been checked against it (N11, N18).
--@include clock
--@include home
--@include crossings
-- A pending record (lib/pending) without windows is only a head.
local function has_windows(counter)
  return #(call('HGET', K_HOME_PENDING, counter) or '') > PENDING_HEAD_BYTES
end

local oldest_first = now - FIRST_AGE_MS_MAX
local out, write, deleted, gone, behind, counters = {OK}, {}, {}, {}, {}, {}
for i = 3, #ARGV, 4 do counters[#counters + 1] = ARGV[i] end
local found = call('HMGET', K_COUNTS, unpack(counters))
for i = 3, #ARGV, 4 do
  local counter, expected, checkpoint = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local before = found[(i + 1) / 4]
  local stands, leased_at, token = '0', 0, 0
  if before then
    local _, _, _, _, was_leased_at, was_token = unpick(CHECKPOINT, before)
    stands, leased_at, token = stand_of(before), was_leased_at, was_token
  end
  local _, _, exact_to, last_write, by_leased_at, by_token = unpick(CHECKPOINT, checkpoint)
  local expires = before and is_deleted(checkpoint) and not is_deleted(before)
  local is_older = by_leased_at < leased_at or by_leased_at == leased_at and by_token < token
  local is_late = not before and exact_to <= oldest_first
  if stands ~= expected or is_older or is_late or expires and has_windows(counter) then
    out[#out + 1] = LOST
  else
    out[#out + 1] = OK
    write[#write + 1] = counter
    write[#write + 1] = checkpoint
    if K_BEHIND then
      behind[#behind + 1] = string.format('%.0f', now)
      behind[#behind + 1] = counter
    end
    if ARGV[i + 3] ~= '' then append_crossings(counter, ARGV[i + 3]) end
    if is_deleted(checkpoint) then
      deleted[#deleted + 1] = string.format('%.0f', last_write)
      deleted[#deleted + 1] = counter
      gone[#gone + 1] = counter
    end
  end
end
if #write > 0 then call('HSET', K_COUNTS, unpack(write)) end
if #behind > 0 then call('ZADD', K_BEHIND, unpack(behind)) end
if #deleted > 0 then
  call('ZADD', K_DELETED, 'GT', unpack(deleted))
  call('HDEL', K_RECOUNTS, unpack(gone))
end
return out
