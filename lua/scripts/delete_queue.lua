#!lua flags=allow-oom
-- delete_queue: remove a queue without live messages. Its outbox stays: those events happened. So does a mark, for
-- the call that is repeated because its reply was lost (Q10).
-- ARGV head. RETURNS {OK} | {NOT_EMPTY}
--@include shard
local MARK_MS = '3600000'

if S[COUNT + INVISIBLE] + S[COUNT + PENDING] + S[COUNT + RUNNING] > 0 then return {NOT_EMPTY} end
for _, key in ipairs(KEYS) do
  if key ~= K_OUTBOX then call('UNLINK', key) end
end
call('SET', K_DELETED, now, 'PX', MARK_MS)
return {OK}
