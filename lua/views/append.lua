#!lua
-- append: writes views to the log of a partition; the entry's id is their time (V2).
-- KEYS log state   ARGV views ('': none, only the time advances)
-- RETURNS {OK} | {FULL}: the owner has no memory for more pairs
if ARGV[1] ~= '' and redis.call('HGET', K_STATE, 'full') == '1' then return {FULL} end
redis.call('XADD', K_LOG, '*', 'v', ARGV[1])
return {OK}
