#!lua flags=allow-oom
-- extend_lease: moves the end of leases to now + lease_ms; a repeated request gets its first answer (Q10, Q11).
-- KEYS all of the shard   ARGV head, then id, fencing token, lease_ms (0: as granted), request mark (8 bytes, zeros:
--      none) of each item
-- RETURNS {OK, code(1) state(1) expires_at(6) of each item}
--@include shard
--@include record
--@include event
--@include exclusive
--@include index
--@include move

local results = {}
for i = 1, (#ARGV - 4) / 4 do
  local id, fencing_token, lease_ms, request = ARGV[1 + 4 * i], tonumber(ARGV[2 + 4 * i]), tonumber(ARGV[3 + 4 * i]), ARGV[4 + 4 * i]
  local m = load_changed(id)
  local code, state, expires = NOT_FOUND, 0, 0
  if m then
    code, state = LEASE_LOST, m.state
    if m.state == RUNNING and m.fencing_token == fencing_token and lease_now < m.due then
      if request == NOT_EXTENDED or m.extended ~= request then
        leave(m, RUNNING)
        m.due, m.extended = now + (lease_ms > 0 and lease_ms or m.lease_ms), request
        enter(m, RUNNING, BY_EXTEND_LEASE, '')
      end
      code, expires = OK, m.due
    end
  end
  results[i] = char(code, state) .. pack('>I6', expires)
end
write_events()
close_shard()
return {OK, table.concat(results)}
