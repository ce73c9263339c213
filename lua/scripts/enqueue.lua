#!lua
-- enqueue: accepts messages. A known id answers its first result, or coalesces (Q1, Q3, Q10, Q12). So does, without
-- coalescing, the remembered id of a message that is gone (Q26).
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

local kinds = ARGV[5]
local items = #kinds
if items == 0 then return {OK, ''} end
local ids, results, accepted = {}, {}, {}
for i = 1, items do ids[i] = ARGV[4 + 2 * i] end
local remembered = id_window_ms > 0 and remembered_ids(ids) or {}
if exclusive then load_keys(items) end

-- KNOWN_READ: ids that one command looks up. BYTES_MAX: of the messages that these have.
local KNOWN_READ, BYTES_MAX = 100, 4194304
local known, bytes = {}, 0
local function look_up(from)
  for i, body in ipairs(call('HMGET', K_BODY, unpack(ids, from, math.min(from + KNOWN_READ - 1, items)))) do
    known[from + i - 1] = body
    if body then bytes = bytes + #body end
  end
end

-- Item i, whose id is known. The messages gathered so far are written first: its id may be among them.
local function again(i, id, content, kind)
  flush()
  local head, body = call('HGET', K_HEAD, id), not accepted[id] and known[i]
  if not body and (not head or kind % 2 == 0) then
    body = call('HGET', K_BODY, id)
    bytes = bytes + #body
  end
  local m = head and decode_head(id, head) or decode_body(id, body)
  if kind % 2 == 0 then
    local from = kind >= 4 and 9 or 1 -- the deadline of a class is of the first call
    local stored = sub(body, 14)
    if sub(stored, from) ~= sub(content, from)
      and sub(without_trace(stored), from) ~= sub(without_trace(content), from) then
      return ID_CONFLICT, 0
    end
    return OK, m.enqueued
  end
  if m.state <= RUNNING then return coalesce(m, content) end
  -- Before the old message is collected: a refused item changes nothing.
  local refused = no_room()
  if refused then return refused, 0 end
  collect(m)
  accepted[id] = true
  return add_fresh(id, content, kind)
end

for i = 1, items do
  if i % KNOWN_READ == 1 then
    if bytes > BYTES_MAX then break end
    look_up(i)
  end
  local id, content, kind = ids[i], ARGV[5 + 2 * i], byte(kinds, i)
  if kind >= 4 then content = with_deadline(content) end
  local code, at
  if known[i] or accepted[id] then
    code, at = again(i, id, content, kind)
  elseif remembered[id] and kind % 2 == 0 then
    code, at = first_result(remembered[id], content)
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
