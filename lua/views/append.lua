#!lua
-- append: writes views to the log of a partition; the entry's id is their time (V2).
-- KEYS log   ARGV views
-- RETURNS {OK}
redis.call('XADD', K_LOG, '*', 'v', ARGV[1])
return {OK}
