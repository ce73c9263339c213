-- scan: the cursor of a walk over a hash by several calls.
-- WHY with the timeline: each process of Redis places fields by a secret that it draws at its start. A cursor of an earlier
-- process, or of another node, would skip fields: the walk begins again.
local scan_of = string.gsub(sub(on_timeline, 2, 5), '.', function(c) return string.format('%02x', byte(c)) end)

-- The cursor in what an earlier call has returned; '0': the start.
local function cursor_in(text)
  local of, cursor = string.match(text, '^(%x*):(%d+)$')
  return of == scan_of and cursor or '0'
end

-- What the next call gets; '0': the walk has ended.
local function cursor_text(cursor)
  return cursor == '0' and '0' or scan_of .. ':' .. cursor
end
