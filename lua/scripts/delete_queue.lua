#!lua flags=allow-oom
-- delete_queue: remove a queue without messages. Its outbox stays: those events happened. So does a mark, for the call
-- that is repeated because its reply was lost (Q10).
-- ARGV head. RETURNS {OK} | {NOT_EMPTY}: live ones are there | {AGAIN}: ended ones are there
-- WHY ended ones are not simply dropped: each leaves an event, and that takes steps.
--@include shard
local MARK_MS, UNREAD_MS = '3600000', '604800000'

if S[COUNT + INVISIBLE] + S[COUNT + PENDING] + S[COUNT + RUNNING] > 0 then return {NOT_EMPTY} end
if call('EXISTS', K_BODY) == 1 then return {AGAIN} end
for _, key in ipairs(KEYS) do
  if key ~= K_OUTBOX then call('UNLINK', key) end
end
call('SET', K_DELETED, now, 'PX', MARK_MS)
if call('XLEN', K_OUTBOX) == 0 then call('DEL', K_OUTBOX)
-- Where history may be given up, nobody may ever read it.
elseif outbox_refuse == 0 then call('PEXPIRE', K_OUTBOX, UNREAD_MS) end
return {OK}
