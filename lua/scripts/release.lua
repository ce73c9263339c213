#!lua flags=allow-oom
-- release: ends leases without success. The message becomes pending, invisible for a delay, or, when its attempts are
-- spent, errored (Q5, Q10, Q11); or what the verdict says (Q23, Q29).
-- KEYS all of the shard   ARGV head, then id, fencing token, delay_ms (-1: the queue's backoff), reason, verdict (0 run
--      again, 1 errored, 2 canceled, 3 no worker got the lease) of each item
-- RETURNS {OK, code(1) state(1) version(4) of each item}
--@include shard
--@include record
--@include event
--@include exclusive
--@include index
--@include move

local REQUIRED = {['1'] = ERRORED, ['2'] = CANCELED, ['3'] = PENDING}
local results = {}
for i = 1, (#ARGV - 4) / 5 do
  local id, fencing_token, delay_ms, reason, verdict = unpack(ARGV, 5 * i, 5 * i + 4)
  fencing_token, delay_ms = tonumber(fencing_token), tonumber(delay_ms)
  local m = load_changed(id)
  local code, state, version = NOT_FOUND, 0, 0
  if m then
    if m.state == RUNNING and m.fencing_token == fencing_token and lease_now < m.due then
      end_run(m, ENDED_RELEASE, BY_RELEASE, reason, delay_ms >= 0 and delay_ms or nil, REQUIRED[verdict])
      code, state, version = OK, m.state, m.version
    elseif
      ended_by(fencing_token, ENDED_RELEASE, m.ended_fencing_token, m.ended_how)
      and (REQUIRED[verdict] or m.ended_how % 16) == m.ended_how % 16 -- an earlier Release without this verdict has won
    then
      code, state, version = OK, m.ended_how % 16, m.ended_version
    else
      code, state = LEASE_LOST, m.state
    end
  end
  results[i] = char(code, state) .. pack('>I4', version)
end
write_events()
close_shard()
return {OK, table.concat(results)}
