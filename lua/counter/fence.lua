#!lua flags=allow-oom
-- fence: moves the fences of a shard that was written under a wrong clock (X6).
-- KEYS state   ARGV now_ms revision fence_ms latest
-- latest: '': the seal rises to fence_ms. A number: the latest window that may have an event; the fences that are later
-- than fence_ms go back to it
-- RETURNS {OK} | {LOST}: there is an event in a later window, and nothing has changed
-- WHY fences may go back here: the caller has counted and settled every event, and no other process follows its revision.
--@include shard
local fence = tonumber(ARGV[3])
if ARGV[4] == '' then
  S[SEALED_TO] = math.max(S[SEALED_TO], fence)
elseif S[LATEST] > tonumber(ARGV[4]) then
  return {LOST}
else
  for _, field in ipairs({SEALED_TO, OPEN, SHOWN, PRUNED}) do S[field] = math.min(S[field], fence) end
end
close_shard()
return {OK}
