-- shard: the state of one shard of the event log. Every script of the log begins with it.
-- ARGV now_ms (lib/clock) revision ...
-- RETURNS from the including script: {NO_SHARD} | {STALE, revision}: the shard follows another revision of its namespace
-- Limits and due times follow the store's time. The fences (sealed_to, open, shown, pruned) never go back, and each rises
-- only as far as an answer relies on it: so a clock that is wrong for a moment moves no more than it must.
-- State record (LOG_STATE), in this order:
--   revision        of the namespace that the shard follows
--   sealed_to       no event before this time is appended: what a rollup has summed stays as it was (N6, N7)
--   open            no event before this time is appended: the latest event that was refused as TOO_OLD is before it, and
--                   that stays true whatever the accept limit becomes (N3)
--   shown           the latest time that a tick has shown: an event that happens when it is counted happens then or later
--   window, arrived, last         the latest window of the clock, events appended in it and in the window before
--   slots, version, layout_from   the latest layout of slots: its number of slots, its version (1 at first, then a hash
--                   of it), its first window
--   pruned          records before this time may be dropped: whether such an event was counted is known to the archive, or
--                   no longer known where there is none
--   latest          no event is in a window after this one
--@include clock
local call, pack, unpick = redis.call, struct.pack, struct.unpack
local byte, sub, floor = string.byte, string.sub, math.floor

local REVISION, SEALED_TO, OPEN, SHOWN = 1, 2, 3, 4
local WINDOW, ARRIVED, LAST, SLOTS, VERSION, LAYOUT_FROM, PRUNED, LATEST = 5, 6, 7, 8, 9, 10, 11, 12
local state_raw = call('GET', K_STATE)
if not state_raw then return {NO_SHARD} end
local S = {unpick(LOG_STATE, state_raw)}
if S[REVISION] ~= tonumber(ARGV[2]) then return {STALE, S[REVISION]} end

-- The time of an event that happens now: behind every fence, also after the store's clock was set back.
local stamp = math.max(now, S[SHOWN], S[SEALED_TO], S[OPEN])

local function close_shard()
  call('SET', K_STATE, pack(LOG_STATE, unpack(S, 1, 12)))
end
