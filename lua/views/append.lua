#!lua
-- append: writes views to the log of a partition; the entry's id is their time (V2).
-- KEYS log state   ARGV now_ms (lib/clock), views
-- RETURNS {OK} | {FULL}: the owner has no memory for more pairs
-- WHY the epoch is compared: what an owner wrote of its memory says nothing of the next one's.
-- WHY a witness: no later entry has an earlier id. Without a witness, one entry under a clock that is ahead would keep
-- the log ahead.
--@include clock
local full_epoch, epoch = unpack(redis.call('HMGET', K_STATE, 'full', 'epoch'))
if full_epoch and full_epoch == epoch then return {FULL} end
redis.call('XADD', K_LOG, '*', 'v', ARGV[2])
return {OK}
