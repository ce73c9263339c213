#!lua
-- build_index: one bounded step of building a filter index over the messages that are older than the index (Q8).
-- KEYS all of the shard   ARGV head, position of the index (1 byte), cursor (lib/scan; '0' at first), how many chunks at most
-- RETURNS {OK, cursor ('0': done, '-': the scan has not begun)}
-- A simple queue: first a walk over the ready messages in their order, which each step of any server continues at
-- `covered_to`; then a scan over the heads for the messages that are not pending. An exclusive queue: a scan over the bodies.
-- WHY the walk: the entries of one list come in its order, and finding their place is what costs a sorted set most; and
-- what it passes needs no entry in `covered` (lib/index). WHY one command for many messages: fewer calls.
--@include shard
--@include record
--@include exclusive
--@include index
--@include scan
-- BYTES_MAX: of bodies; a step ends with the chunk that exceeds it.
local CHUNK, BYTES_MAX = 250, 2 ^ 20
local index = indexes[byte(ARGV[5])]
local cursor, bytes = cursor_in(ARGV[6]), 0
--@include build_index/tuple
--@include build_index/walk
--@include build_index/scan

local answer = '-'
-- WHY one chunk of an exclusive queue: its order takes several commands for each message.
for _ = 1, exclusive and 1 or tonumber(ARGV[7]) do
  local from = exclusive and ALL_PASSED or passed_by_walk(index)
  if from ~= ALL_PASSED then walk(from)
  else
    scan()
    answer = cursor_text(cursor)
    if cursor == '0' then break end
  end
  if bytes > BYTES_MAX then break end
end
return {OK, answer}
