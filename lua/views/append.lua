#!lua
-- append: writes views to the log of a partition; the entry's id is their time (V2).
-- KEYS log state   ARGV views
-- RETURNS {OK} | {FULL}: the owner has no memory for more pairs
-- WHY the epoch is compared: what an owner wrote of its memory says nothing of the next one's.
local full_epoch, epoch = unpack(redis.call('HMGET', K_STATE, 'full', 'epoch'))
if full_epoch and full_epoch == epoch then return {FULL} end
redis.call('XADD', K_LOG, '*', 'v', ARGV[1])
return {OK}
