#!lua flags=allow-oom
-- purge: one bounded step that cancels and collects messages up to a sequence number (Q7).
-- KEYS all of the shard   ARGV head, which (0: all but running, 1: all, 2: terminal only), cursor (lib/scan), until_sequence
--      (0: the current one)
-- RETURNS {OK, purged, cursor ('0': done), until_sequence}
--@include shard
--@include record
--@include event
--@include exclusive
--@include index
--@include move
--@include change/revoke
--@include scan

local until_seq = tonumber(ARGV[7])
if until_seq == 0 then until_seq = S[SEQ] end
local function wanted(state)
  if state == RUNNING then return ARGV[5] == '1' end
  return state > RUNNING or ARGV[5] ~= '2'
end
local page = call('HSCAN', K_BODY, cursor_in(ARGV[6]), 'COUNT', 100)
local purged = 0
for i = 1, #page[2], 2 do
  local m = load_message(page[2][i])
  if m and m.seq <= until_seq and wanted(m.state) then
    if m.state <= RUNNING then
      if m.state == RUNNING then
        revoke(m)
        end_lease(m, ENDED_CANCEL, CANCELED)
        if m.flags % 2 == 1 then m.flags = m.flags - MARKED end
      end
      leave(m, CANCELED)
      m.due = 0
      enter(m, CANCELED, BY_PURGE, '')
      call('RPOP', K_DONE) -- its entry: the message is collected at once
    end
    collect(m)
    purged = purged + 1
  end
end
write_events()
close_shard()
return {OK, purged, cursor_text(page[1]), string.format('%.0f', until_seq)}
