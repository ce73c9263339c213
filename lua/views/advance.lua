#!lua flags=allow-oom
-- advance: writes an entry without views to the log of a partition: only its time advances, so that windows end (V3).
-- KEYS log   ARGV now_ms (lib/clock)
-- RETURNS {OK}
-- WHY allow-oom: a full store refuses views, so nothing else ends the windows whose pairs fill it.
--@include clock
redis.call('XADD', K_LOG, '*', 'v', '')
return {OK}
