-- change/selection: which messages a ChangeMessages is about (Q25), by the arguments of the script change_messages.
local began_ms, entered_from_ms, entered_to_ms = tonumber(ARGV[9]), tonumber(ARGV[11]), tonumber(ARGV[12])
local reason, reason_contains = ARGV[13], ARGV[14]
local verb, text, visible_at_ms = ARGV[15], ARGV[16], tonumber(ARGV[17])
local PAIRS_AT = 18
if began_ms == 0 then began_ms = now end

-- RETURNS whether the selection matches, and an update would change the message.
local function passes(m)
  if m.since > began_ms or m.since < entered_from_ms or m.since >= entered_to_ms then return false end
  if reason ~= '' and m.reason ~= reason then return false end
  if reason_contains ~= '' and not string.find(string.lower(m.reason), reason_contains, 1, true) then return false end
  local metadata = ARGV[PAIRS_AT] and metadata_of(m.fixed)
  for i = PAIRS_AT, #ARGV, 2 do
    if metadata[ARGV[i]] ~= ARGV[i + 1] then return false end
  end
  return verb ~= 'update' or updated(m, text, visible_at_ms) ~= nil
end

-- Of the bodies that a page reads: other calls wait as long as the script reads.
local BYTES_MAX, bytes = 3 * 1024 * 1024, 0

-- As load_message; counts the bytes of bodies.
local function load_counted(id)
  local head = call('HGET', K_HEAD, id)
  if head then return decode_head(id, head) end
  local body = call('HGET', K_BODY, id)
  bytes = bytes + #body
  return decode_body(id, body)
end
