#!lua flags=no-writes
-- check: one bounded step of the scrubber (invariants I1 to I9 of the model).
-- KEYS all of the shard   ARGV head, phase, cursor (lib/scan; '': the start)
-- RETURNS {OK, next phase (0: done), next cursor, entries checked, then invariant, detail of each violation}
-- WHY phases: each message is looked up in the place that its state names; then each place is walked back to its
-- messages. Each step is atomic, so a message that moves between two steps raises no false alarm.
--@include shard
--@include record
--@include exclusive
--@include index
--@include scan
--@include check/walk
--@include check/message
--@include check/key
--@include check/index

local PHASES = {
  [0] = function() walk('HSCAN', K_BODY, check_message) end,
  function() walk('HSCAN', K_HEAD, check_message) end,
  function()
    walk('ZSCAN', K_READY, function(member) check_pending(member, 'ready') end)
  end,
  function()
    walk('ZSCAN', K_BACKLOG, function(entry) check_pending(sub(entry, 2 + byte(entry)), 'backlog') end)
  end,
  function()
    walk('ZSCAN', K_RUNNING, function(id) check_state(id, RUNNING, 'running') end)
  end,
  function()
    walk('ZSCAN', K_INVISIBLE, function(id) check_state(id, INVISIBLE, 'invisible') end)
  end,
  function() walk('HSCAN', K_KEYS, check_key) end,
  function() walk('ZSCAN', K_ERRORED, check_errored) end,
}

check_counts()
if PHASES[phase] then PHASES[phase]() elseif indexes[phase - #PHASES] then check_index(indexes[phase - #PHASES]) end
if reply[2] > #PHASES + #indexes then reply[2] = 0 end
return reply
