#!lua flags=allow-oom
-- delete_queue: remove a queue without live messages. Its outbox stays: those events happened.
-- ARGV head. RETURNS {OK} | {NOT_EMPTY}
--@include shard
if S[COUNT + INVISIBLE] + S[COUNT + PENDING] + S[COUNT + RUNNING] > 0 then return {NOT_EMPTY} end
for _, key in ipairs(KEYS) do
  if key ~= K_OUTBOX then call('UNLINK', key) end
end
return {OK}
