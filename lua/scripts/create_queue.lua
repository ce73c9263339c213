#!lua
-- create_queue: writes the configuration and the state of a new queue shard, unless the shard exists (Q1).
-- KEYS all of the shard   ARGV now_ms (lib/clock), configuration, then of a shard that is not the first of its queue: the identity of the
--      queue, and the epoch of its shards
-- RETURNS {OK, configuration, state} as they are after the call | {NO_QUEUE}: the shard was deleted with its queue in this epoch
--      or a later one, and a late call must not create it again
-- WHY the sequence starts at the latest time (now_max), in microseconds, or behind that of the queue that was deleted: a queue that is created again
-- never grants the same fencing token twice (Q11). The revision starts at their low 32 bits, so that a server's cached configuration
-- of the deleted queue is stale in the new one. The outbox starts there too, or behind that of the deleted queue.
--@include clock
local existing = redis.call('GET', K_STATE)
if not existing then
  local deleted = redis.call('GET', K_DELETED) or ''
  if ARGV[3] then
    local identity, epoch = string.match(deleted, 'of (%x+):(%d+)$')
    if identity == ARGV[3] and tonumber(epoch) >= tonumber(ARGV[4]) then return {NO_QUEUE} end
  end
  local sequence = math.max(now_max * 1000 + micros, tonumber(string.match(deleted, '^%a+ (%d+)')) or 0)
  local offset = math.max(sequence, tonumber(string.match(deleted, '^%a+ %d+ (%d+)')) or 0)
  if redis.call('EXISTS', K_OUTBOX) == 1 then
    redis.call('PERSIST', K_OUTBOX)
    local info = redis.call('XINFO', 'STREAM', K_OUTBOX)
    for i = 1, #info, 2 do
      if info[i] == 'last-generated-id' then
        local first, count = string.match(info[i + 1], '(%d+)-(%d+)')
        offset = first + count
      end
    end
  end
  existing = struct.pack(STATE, sequence % 2 ^ 32, sequence, 0, 0, 0, 0, 0, 0, 0, FAR, 0, 0,
    now, offset, offset)
  -- A test's own clock has no timeline.
  if #ARGV[1] > 14 then existing = existing .. struct.pack('>Bc4I7I6', 1, string.sub(ARGV[1], 12, 15), 0, now) end
  redis.call('SET', K_STATE, existing)
  redis.call('SET', K_CONFIG, ARGV[2])
  redis.call('DEL', K_DELETED)
end
return {OK, redis.call('GET', K_CONFIG), existing}
