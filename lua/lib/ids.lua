-- ids: the ids of messages that a sweep has collected, while the queue's window lasts (Q26), in the hash `requests`:
--   '\1' id -> until(6) enqueued_at(6) epoch(4) digest(8) of the content
--   '\2'    -> epoch(4): records of other epochs count as none. A window of 0 begins a new epoch (update_queue.lua).
-- No other name begins with '\1' or '\2': a request id has no control characters. The scores of ids in request_due are 2 * FAR
-- later, for the reason of slots (lib/requests).
-- WHY in `requests`: an Enqueue whose queue has no window reads none of it, and no script gets more keys.
-- WHY the block: a script may have 200 local names.
local remember_ids, remembered_ids, first_result, forget_id, forget_ids, without_trace
do
  local IDS, EPOCH, FIRST_EPOCH = 2 * FAR, '\2', '\0\0\0\0'

  local function name_of(id)
    return '\1' .. id
  end

  -- RETURNS the content without its trace context (O2): a repetition may belong to another trace. In an exclusive queue the first
  -- pair decides where the message waits, whatever its key.
  function without_trace(content)
    local last = 10 + byte(content, 9) * 256 + byte(content, 10)
    local fixed = sub(content, 1, last)
    local _, _, _, metadata_at = options_of(fixed)
    local kept, at = sub(fixed, 11, metadata_at - 1), metadata_at
    while at <= last do
      local key, _, after = unpick('Bc0Bc0', fixed, at)
      if key ~= 'traceparent' and key ~= 'tracestate' or exclusive and at == metadata_at then
        kept = kept .. sub(fixed, at, after - 1)
      end
      at = after
    end
    if kept == '\0' then kept = '' end
    return sub(content, 1, 8) .. pack('>I2', #kept) .. kept .. sub(content, last + 1)
  end

  -- WHY the deadline of a class (Q28) does not count: a repetition comes later.
  local function digest_of(content)
    content = without_trace(content)
    local options = byte(content, 9) * 256 + byte(content, 10)
    if options > 0 and byte(content, 11) > 7 then content = sub(content, 9) end
    local hex = redis.sha1hex(content)
    return pack('>I4I4', tonumber(sub(hex, 1, 8), 16), tonumber(sub(hex, 9, 16), 16))
  end

  -- These messages ended at these times and are about to be collected: their bodies are still there.
  function remember_ids(ids, ended)
    local epoch, records, scores
    for i, id in ipairs(ids) do
      local lives_until = ended[i] + id_window_ms
      if lives_until > now then
        epoch = epoch or call('HGET', K_REQUESTS, EPOCH) or FIRST_EPOCH
        records, scores = records or {}, scores or {}
        local n, name, body = #records + 1, name_of(id), call('HGET', K_BODY, id)
        records[n], records[n + 1] = name, pack('>I6', lives_until) .. sub(body, 8, 13) .. epoch .. digest_of(sub(body, 14))
        scores[n], scores[n + 1] = IDS + lives_until, name
      end
    end
    if records then
      call('HSET', K_REQUESTS, unpack(records))
      call('ZADD', K_REQUEST_DUE, unpack(scores))
    end
  end

  -- RETURNS the record of each id that is remembered, by id.
  function remembered_ids(ids)
    local names, found = {EPOCH}, {}
    for i, id in ipairs(ids) do names[i + 1] = name_of(id) end
    local records = call('HMGET', K_REQUESTS, unpack(names))
    for i, id in ipairs(ids) do
      local raw = records[i + 1]
      if raw and unpick('>I6', raw) > now and sub(raw, 13, 16) == (records[1] or FIRST_EPOCH) then found[id] = raw end
    end
    return found
  end

  -- RETURNS outcome, enqueued_at of the message that had the id, for an Enqueue with this content.
  function first_result(raw, content)
    if sub(raw, 17) ~= digest_of(content) then return ID_CONFLICT, 0 end
    return OK, (unpick('>I6', raw, 7))
  end

  -- RETURNS when the first of the ids is to be forgotten; nil: there is none.
  local function next_forget_id()
    local first_due = call('ZRANGE', K_REQUEST_DUE, IDS, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')[2]
    return first_due and (id_window_ms > 0 and first_due - IDS or now)
  end

  -- Deletes the records of these ids, and with the last one the epoch. RETURNS what next_forget_id returns.
  local function delete_records(names)
    call('ZREM', K_REQUEST_DUE, unpack(names))
    call('HDEL', K_REQUESTS, unpack(names))
    local next_ms = next_forget_id()
    if not next_ms then call('HDEL', K_REQUESTS, EPOCH) end
    return next_ms
  end

  function forget_id(id)
    delete_records({name_of(id)})
  end

  -- One bounded step. RETURNS when the next is due (not before `later`, unless this one was full); nil: no id is left.
  function forget_ids(limit, later)
    local next_ms = next_forget_id()
    if not next_ms or next_ms > now then return next_ms and math.max(next_ms, later) end
    local last = id_window_ms > 0 and IDS + now or '+inf'
    local names = call('ZRANGE', K_REQUEST_DUE, IDS, last, 'BYSCORE', 'LIMIT', 0, limit)
    next_ms = delete_records(names)
    return next_ms and (#names == limit and now or math.max(next_ms, later))
  end
end
