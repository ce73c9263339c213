#!lua flags=allow-oom
-- ack_outbox: removes the events before an offset, which a sink has acknowledged (Q19). A repeated or late call changes
-- nothing.
-- KEYS all of the shard   ARGV offset
-- RETURNS {OK, added, acked} | {NO_QUEUE, entries left}: the queue is deleted; an empty outbox is deleted too
-- WHY without lib/shard: no configuration matters here, and the outbox outlives its queue.
local ACKED_AT = struct.size(STATE) - 6 -- its last seven bytes, see shard.lua
-- WHY -1: the mark of a timeline that begins at the offset, OFFSET-0, goes, too: it would keep an outbox from being empty.
redis.call('XTRIM', K_OUTBOX, 'MINID', ARGV[1] .. '-1')
local state = redis.call('GET', K_STATE)
if not state then
  local left = redis.call('XLEN', K_OUTBOX)
  if left == 0 then redis.call('DEL', K_OUTBOX) end
  return {NO_QUEUE, left}
end
local added, acked = struct.unpack('>I7I7', state, ACKED_AT - 7)
if tonumber(ARGV[1]) > acked then
  acked = math.min(tonumber(ARGV[1]), added)
  redis.call('SETRANGE', K_STATE, ACKED_AT - 1, struct.pack('>I7', acked))
end
return {OK, string.format('%.0f', added), string.format('%.0f', acked)}
