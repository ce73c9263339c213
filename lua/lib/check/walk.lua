-- check/walk: walks one structure a page at a time, and collects the violations.
local STEP = 100
local phase, cursor = tonumber(ARGV[5]), cursor_in(ARGV[6])
local reply = {OK, 0, '', 0}

local function violated(invariant, detail)
  reply[#reply + 1], reply[#reply + 2] = invariant, detail
end

local function expect(holds, invariant, detail)
  if not holds then violated(invariant, detail) end
end

-- Calls `visit` with each entry of one page, and its score or value. After the last page the next phase follows.
local function walk(command, key, visit)
  local page = call(command, key, cursor, 'COUNT', STEP)
  for i = 1, #page[2], 2 do visit(page[2][i], page[2][i + 1]) end
  reply[4] = math.floor(#page[2] / 2)
  if page[1] == '0' then reply[2], reply[3] = phase + 1, '' else reply[2], reply[3] = phase, cursor_text(page[1]) end
end

-- The message with this id; nil, and a violation, where it has no record that can be decoded.
local function readable(id)
  local ok, m = pcall(load_message, id)
  expect(ok and m, 'I7', id .. ': no readable record')
  return ok and m or nil
end
