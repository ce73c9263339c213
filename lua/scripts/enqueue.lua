#!lua
-- enqueue: accepts messages. A known id answers its first result, or coalesces (Q1, Q3, Q10, Q12). So does, without
-- coalescing, the remembered id of a message that is gone (Q26). A closed shard takes no other message (Q17), except
-- one of a value that it keeps (enqueue/kept): MOVED.
-- KEYS all of the shard   ARGV head, kinds (a byte for each item: 1 coalesce + 2 has invisibility + 4 has a priority
--      class), then id, content of each item; content is fixed .. payload, see lib/record; the priority of an item with a
--      class is an offset to the time
-- RETURNS {OK, outcome(1) enqueued_at(6) of each item; of the first ones only, where the messages under their ids are large}
-- WHY no allow-oom: a full store refuses the whole call before its first write.
-- WHY a batch: fresh messages, nearly all of them, gather and are written with one call per structure.
--@include shard
--@include record
--@include event
--@include exclusive
--@include index
--@include move
--@include ids
--@include enqueue/class
--@include enqueue/keys
--@include enqueue/fresh
--@include enqueue/coalesce
--@include enqueue/kept

local kinds = ARGV[5]
local items = #kinds
if items == 0 then return {OK, ''} end
-- gone: ids whose messages this call has collected, and whose bodies it may have read before.
local ids, results, accepted, gone = {}, {}, {}, {}
for i = 1, items do ids[i] = ARGV[4 + 2 * i] end
local remembered = id_window_ms > 0 and remembered_ids(ids) or {}
if exclusive then load_keys(items) end
if exclusive and closed then
  local contents = {}
  for i = 1, items do contents[i] = ARGV[5 + 2 * i] end
  read_kept(contents)
end
--@include enqueue/known

for i = 1, items do
  if i % KNOWN_READ == 1 then
    if bytes > BYTES_MAX then break end
    look_up(i)
  end
  local id, content, kind = ids[i], ARGV[5 + 2 * i], byte(kinds, i)
  if kind >= 4 then content = with_deadline(content) end
  local code, at
  if known[i] and not gone[id] or accepted[id] then
    code, at = again(i, id, content, kind)
  elseif remembered[id] and kind % 2 == 0 then
    code, at = first_result(remembered[id], content)
  elseif moves(content) then
    code, at = MOVED, 0
    if remembered[id] then
      forget_id(id)
      remembered[id] = nil
    end
  else
    code, at = add_fresh(id, content, kind)
    if code == OK then
      accepted[id] = true
      if remembered[id] then forget_id(id) end
    end
  end
  results[i] = char(code) .. pack('>I6', at)
end
flush()
if not exclusive then became_ready = became_ready + added end
S[COUNT + PENDING] = S[COUNT + PENDING] + added
write_events()
close_shard()
return {OK, table.concat(results)}
