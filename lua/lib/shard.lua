-- shard: what every script begins with: the clock, the shard's counters, the queue's parameters.
-- ARGV now_ms (0: the store's clock; tests pass their own) revision parameters server_id ...
-- RETURNS from the including script: NO_QUEUE | STALE config state, before anything is read or written
-- WHY the caller's configuration may be old: a script acts only on the revision that the caller acts on (Q2).
local call, pack, unpick = redis.call, struct.pack, struct.unpack
local byte, char, sub = string.byte, string.char, string.sub

local now = tonumber(ARGV[1])
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- S: revision sequence counts(1..6) wait_until sweep_at parked popped created added acked; then the waiting
-- server's id (STATE is their layout). added: the outbox's next offset; acked: that of the first event that no sink has yet.
local SEQ, COUNT, WAIT_UNTIL, SWEEP_AT, PARKED, POPPED, CREATED, ADDED, ACKED = 2, 2, 9, 10, 11, 12, 13, 14, 15
local state_raw = call('GET', K_STATE)
if not state_raw then return {NO_QUEUE} end
local S = {unpick(STATE, state_raw)}
local waiter = sub(state_raw, S[16])
if S[1] ~= tonumber(ARGV[2]) then return {STALE, call('GET', K_CONFIG), state_raw} end

local exclusive, default_lease_ms, default_invisibility_ms, default_max_attempts, retention_ms,
  backoff_kind, backoff_base_ms, backoff_max_ms, backoff_jitter, max_depth,
  outbox_refuse, outbox_keep, payload_kept, parameters_end = unpick('>BI4I6I2I6BI6I6BI6I4I4I2', ARGV[3])
exclusive = exclusive == 1

-- What this call made runnable, and the earliest due time it set: who waits is told of both when it closes.
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

-- The first member of a sorted set with a prefix. (Numbers as text: a Lua number would be printed for every call.) What follows a prefix is a priority (any 8 bytes) and a
-- sequence (whose first byte is never 255), so prefix .. 9 x 255 is past all of them.
local PAST = string.rep('\255', 9)
local function first(key, prefix)
  return call('ZRANGEBYLEX', key, '[' .. prefix, '(' .. prefix .. PAST, 'LIMIT', '0', '1')[1]
end

local function close_shard()
  local tell = false
  if became_ready > 0 and S[WAIT_UNTIL] > now and waiter ~= ARGV[4] then
    S[WAIT_UNTIL], waiter, tell = 0, '', true
  end
  if earliest_due < S[SWEEP_AT] then S[SWEEP_AT], tell = earliest_due, true end
  local packed = pack(STATE, unpack(S, 1, 15)) .. waiter
  if packed ~= state_raw then call('SET', K_STATE, packed) end
  if tell then call('PUBLISH', WAKE_CHANNEL, K_STATE) end
end
