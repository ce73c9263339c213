-- build_index/scan: messages in the order of Redis's hash.
local function scan()
  local page = call('HSCAN', exclusive and K_BODY or K_HEAD, cursor, 'COUNT', CHUNK)
  local ids, records = {}, {}
  for i = 1, #page[2], 2 do
    local id = page[2][i]
    -- A scan may show a message twice.
    if not records[id] then ids[#ids + 1] = id end
    records[id] = page[2][i + 1]
    bytes = bytes + #page[2][i + 1]
  end
  cursor = page[1]
  if #ids == 0 then return end
  local known = call('SMISMEMBER', index.covered, unpack(ids))
  local heads = exclusive and call('HMGET', K_HEAD, unpack(ids)) or {}
  local new, counts = {}, {}
  for i, id in ipairs(ids) do
    local body, head = records[id], heads[i]
    if not exclusive then head = body end
    local state = head and byte(head) or PENDING
    -- The walk has passed what is pending.
    if known[i] == 0 and (exclusive or state ~= PENDING) then
      local record, at = head or body, head and fixed_at(head) or 14
      local tuple = tuple_in(record, at)
      if tuple then
        new[#new + 1] = id
        local field = tuple .. char(state)
        counts[field] = (counts[field] or 0) + 1
        if state == PENDING then
          local seq7 = head and sub(head, 52, 58) or sub(body, 1, 7)
          add_to_order(index, tuple, sub(record, at), sub(record, at, at + 7) .. seq7 .. id)
        end
      end
    end
  end
  if #new > 0 then call('SADD', index.covered, unpack(new)) end
  add_counts(counts)
end
