-- sweep/errored: collects errored messages, the oldest first: past their retention, or as long as the queue has too
-- many (Q22).
local ERRORED_BYTES_MAX = 4194304 -- of payloads, which only remembered ids need
local TOO_MANY = 'too many errored messages'

local function errored_bytes()
  return tonumber(call('GET', K_ERRORED_BYTES) or 0)
end

-- RETURNS how many, and how many of these before their retention ended.
local function collect_errored()
  local count, bytes = call('ZCARD', K_ERRORED), errored_bytes()
  local oldest = count > 0 and call('ZRANGE', K_ERRORED, 0, share_of(256) - 1, 'WITHSCORES') or {}
  local collected, dropped, read = 0, 0, 0
  for i = 1, #oldest, 2 do
    local is_due = oldest[i + 1] + errored_retention_ms <= now
    if not is_due and not too_many_errored(count, bytes) or read > ERRORED_BYTES_MAX then break end
    local m = load_message(sub(oldest[i], 8))
    local payload = payload_bytes(m)
    count, bytes, collected = count - 1, bytes - payload, collected + 1
    if id_window_ms > 0 then read = read + payload end
    if not is_due then dropped = dropped + 1 end
    if id_window_ms > 0 then remember_ids({m.id}, {m.since}) end
    collect(m, is_due and '' or TOO_MANY)
  end
  return collected, dropped
end

-- RETURNS when the next one is to be collected; FAR: never.
local function next_errored()
  local oldest = call('ZRANGE', K_ERRORED, 0, 0, 'WITHSCORES')[2]
  if not oldest then return FAR end
  if too_many_errored(call('ZCARD', K_ERRORED), errored_bytes()) then return now end
  return oldest + errored_retention_ms
end
