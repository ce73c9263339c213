#!lua flags=allow-oom
-- delete_queue: removes a queue shard without messages. Its outbox stays, because its events are still to be relayed.
-- A mark stays too: a repeated call, whose first reply was lost, gets the same answer (Q10), no Enqueue makes a simple
-- queue of a name that was exclusive in the last 30 days (Q1), and a queue that is created again begins with numbers that this one had not (Q11).
-- KEYS all of the shard   ARGV head, exclusive (1), then of a shard that is not the first: identity:epoch (create_queue)
-- RETURNS {OK} | {NOT_EMPTY}: live messages exist | {AGAIN}: only terminal messages exist; collect them first
-- WHY terminal messages are not dropped here: each leaves an event, which takes bounded steps.
--@include shard
local HOUR_MS, MONTH_MS, UNREAD_MS = 3600000, 2592000000, '604800000'

if S[COUNT + INVISIBLE] + S[COUNT + PENDING] + S[COUNT + RUNNING] > 0 then return {NOT_EMPTY} end
if call('EXISTS', K_BODY) == 1 then return {AGAIN} end
for _, key in ipairs(KEYS) do
  if key ~= K_OUTBOX then call('UNLINK', key) end
end
local is_exclusive, first, last = ARGV[5] == '1', S[SEQ] + NUMBERS_LEFT_OUT, math.max(S[SEQ], S[ADDED])
local mark, mark_ms = is_exclusive and 'exclusive' or 'simple', is_exclusive and MONTH_MS or HOUR_MS
-- Mostly the next queue begins later in any case. Where the sequence or the outbox is ahead of the time (lib/timeline), the mark lasts longer.
if math.max(first, last) > now * 1000 then mark = string.format('%s %.0f %.0f', mark, first, S[ADDED]) end
if ARGV[6] then mark = mark .. ' of ' .. ARGV[6] end
call('SET', K_DELETED, mark, 'PX', string.format('%.0f', mark_ms + math.max(0, last / 1000 - now)))
if call('XLEN', K_OUTBOX) == 0 then call('DEL', K_OUTBOX)
-- Where a full outbox drops its oldest events, no relay may ever read this one: it is deleted after a while.
elseif outbox_refuse == 0 then call('PEXPIRE', K_OUTBOX, UNREAD_MS) end
return {OK}
