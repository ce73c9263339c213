#!lua flags=allow-oom
-- change_messages: redrives, cancels or updates the messages of one state that a selection matches, a page of them (Q25).
-- KEYS all of the shard   ARGV head, state, cursor (lib/page), limit, whether `done` may have errored messages, began_ms (0:
--      now), dry run (0 | 1), entered_from_ms, entered_to_ms, reason ('': any), reason_contains (lower case; '': any),
--      verb, reason of cancel or priority of update, visible_at_ms of update, then key, value of each pair of metadata
-- RETURNS {OK, began_ms, next cursor ('': the last page of this state), examined, matched, changed, then id, code(1) state(1)
--      version(4) of each message that was refused}
-- WHY only what was in its state when the first call began: a message that a worker runs and that fails again after its
-- redrive would be redriven without end.
--@include shard
--@include record
--@include event
--@include exclusive
--@include index
--@include move
--@include page
--@include change/cancel
--@include change/redrive
--@include change/update
--@include change/selection

local state, cursor, limit, is_dry_run = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7]), ARGV[10] == '1'
local matched, changed, refused, examined = 0, 0, {}, 0
local change_max = share_of(2 * limit) -- with the heads that are also examined

local function change(m)
  if verb == 'redrive' then return redrive(m) end
  if verb == 'cancel' then return cancel(m, 0, true, text) end
  return update(m, text, visible_at_ms)
end

local function examine(id)
  local m = load_counted(id)
  if not passes(m) then return end
  matched = matched + 1
  if is_dry_run then return end
  local code, at, version = change(m)
  if code == OK then
    changed = changed + 1
  else
    local n = #refused
    refused[n + 1], refused[n + 2] = id, char(code, at) .. pack('>I4', version)
  end
end

-- A message of the backlog may become more urgent than the head of its value, which would then be behind the cursor.
local function examine_head(id)
  local kind, _, head = get_key(value_of(load_counted(id).fixed))
  if kind == FREE then examine(sub(head, 16)) end
end

local function examine_page(with_heads)
  while examined < #ids and bytes + moved_bytes < BYTES_MAX and changed < change_max do
    examined = examined + 1
    if with_heads then examine_head(ids[examined]) end
    examine(ids[examined])
  end
end

local next_cursor = ''
if state == PENDING then
  -- The backlog comes first: a head that leaves ready is replaced by a message of the backlog.
  if exclusive and sub(cursor, 1, 1) ~= 'r' then
    page_of_backlog(sub(cursor, 2), limit)
    examine_page(verb == 'update' and not is_dry_run)
    cursor = 'r'
  end
  if #ids < limit then page_of_ready(sub(cursor, 2), limit - #ids) end
  if #ids == limit then next_cursor = cursors[limit] end
else
  next_cursor = page_of_others(state, cursor, limit, ARGV[8] == '1')
end
examine_page(false)
if examined < #ids then next_cursor = cursors[examined] end
write_events()
close_shard()
local reply = {OK, began_ms, next_cursor, examined, matched, changed}
for i, part in ipairs(refused) do reply[6 + i] = part end
return reply
