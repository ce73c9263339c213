#!lua flags=allow-oom
-- take_turn: one owner at a time does a background job; who has the turn renews it, who has not waits for its end.
-- KEYS turn   ARGV owner turn_ms. RETURNS 1 mine | 0 another's
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
