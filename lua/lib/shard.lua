-- shard: the beginning of every script: the clock, the shard's state, the queue's parameters.
-- ARGV (the "head" in the headers of scripts) now_ms (lib/clock), revision, parameters,
--      server_id ('': no server is exempt from wake-ups)
-- RETURNS from the including script: {NO_QUEUE} | {STALE, config, state}, before it reads or writes anything else
-- WHY the revision: the caller's cached configuration may be stale, and a script acts only on the current one (Q2).
--@include clock
local call, pack, unpick = redis.call, struct.pack, struct.unpack
local byte, char, sub = string.byte, string.char, string.sub

-- S: revision sequence counts(1..6) wait_until sweep_at parked popped created added acked; then the waiting server's id
-- (STATE is their layout). added: the next offset of the outbox; acked: the offset of the first event that no sink has
-- acknowledged. Behind the layout: the timeline, which version 0.1 does not have (lib/timeline).
local SEQ, COUNT, WAIT_UNTIL, SWEEP_AT, PARKED, POPPED, CREATED, ADDED, ACKED = 2, 2, 9, 10, 11, 12, 13, 14, 15
local state_raw = call('GET', K_STATE)
if not state_raw then return {NO_QUEUE} end
local S = {unpick(STATE, state_raw)}
local on_timeline, waiter = '', sub(state_raw, S[16])
local timeline_bytes = byte(waiter) == 1 and 18 or byte(waiter) == 2 and 28 -- lib/timeline
if timeline_bytes then on_timeline, waiter = sub(waiter, 1, timeline_bytes), sub(waiter, timeline_bytes + 1) end
local exclusive, default_lease_ms, default_invisibility_ms, default_max_attempts, retention_ms,
  backoff_kind, backoff_base_ms, backoff_max_ms, backoff_jitter, max_depth,
  outbox_refuse, outbox_keep, payload_kept, errored_retention_ms, max_errored, max_errored_bytes, errored_payload_kept,
  id_window_ms, parameters_end =
  unpick('>BI4I6I2I6BI6I6BI6I4I4I2I6I6I6I2I6', ARGV[3])
--@include timeline
if S[1] ~= tonumber(ARGV[2]) then return {STALE, call('GET', K_CONFIG), state_raw} end

exclusive = exclusive % 2 == 1 -- lib/complete/batch, lib/dequeue/reply and enqueue have the other bits

-- How many messages this call made runnable, and the earliest due time that it set: close_shard publishes both.
local became_ready, earliest_due = 0, FAR

local function note_due(due)
  if due < earliest_due then earliest_due = due end
end

-- Byte order of two members' priority and sequence. Not Lua's <, which follows the locale.
local function before(a, b)
  local a1, a2, a3 = unpick('>I4I4I7', a)
  local b1, b2, b3 = unpick('>I4I4I7', b)
  if a1 ~= b1 then return a1 < b1 end
  if a2 ~= b2 then return a2 < b2 end
  return a3 < b3
end

-- The first member of a sorted set that has the prefix. A prefix is followed by a priority (any 8 bytes) and a
-- sequence, whose first byte is never 255: so prefix .. 9 x 255 is past all of them. (Numbers as text: Redis would print a Lua
-- number for every call.)
local PAST = string.rep('\255', 9)
local function first(key, prefix)
  return call('ZRANGEBYLEX', key, '[' .. prefix, '(' .. prefix .. PAST, 'LIMIT', '0', '1')[1]
end

-- Writes the state, and wakes the waiting servers if a message became runnable or an earlier due time was set.
local function close_shard()
  local publish = false
  if became_ready > 0 and S[WAIT_UNTIL] > now and waiter ~= ARGV[4] then
    S[WAIT_UNTIL], waiter, publish = 0, '', true
  end
  if earliest_due < S[SWEEP_AT] then S[SWEEP_AT], publish = earliest_due, true end
  local packed = pack(STATE, unpack(S, 1, 15)) .. on_timeline .. waiter
  if packed ~= state_raw then call('SET', K_STATE, packed) end
  if publish then call('PUBLISH', WAKE_CHANNEL, K_STATE) end
end
