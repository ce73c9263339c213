-- build_index/walk: the ready messages of a simple queue, in their order.
local function add_counts(counts)
  for field, count in pairs(counts) do call('HINCRBY', index.counts, field, count) end
end

-- The next ready messages behind the member `from`.
local function walk(from)
  local page = call('ZRANGEBYLEX', K_READY, '(' .. from, '+', 'LIMIT', '0', CHUNK)
  if #page > 0 then
    local ids, counts, order, n = {}, {}, {}, 0
    for i, member in ipairs(page) do ids[i] = sub(member, 16) end
    local known = call('SMISMEMBER', index.covered, unpack(ids))
    for i, body in ipairs(call('HMGET', K_BODY, unpack(ids))) do
      bytes = bytes + #body
      local tuple = known[i] == 0 and tuple_in(body, 14)
      if tuple then
        counts[tuple] = (counts[tuple] or 0) + 1
        order[n + 1], order[n + 2], n = '0', 'R' .. tuple .. page[i], n + 2
      end
    end
    if n > 0 then call('ZADD', index.order, unpack(order)) end
    local fields = {}
    for tuple, count in pairs(counts) do fields[tuple .. char(PENDING)] = count end
    add_counts(fields)
  end
  index.passed = #page == CHUNK and page[CHUNK] or ALL_PASSED
  call('SET', index.covered_to, index.passed)
end
