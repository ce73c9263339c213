-- timeline: the shard moves to the timeline of the call, if it is on another one (Q17): this Redis was started again, or
-- was a replica, and may lack the last writes. Part of lib/shard: it writes the state, and the call is stale then.
-- ARGV now_ms (lib/clock), behind the timeline: from(4) ahead_ms I4 otherwise_ms I4, then 1(1): Redis has confirmed the timeline
-- RETURNS from the including script: {-2, now_ms} if it differs and is not confirmed, before anything is written
-- WHY confirmed: a Redis changes its replication id while it serves, when its first replica comes or the last one has been gone for
-- long. Connections of before have the earlier timeline, and two callers would move the shard to and fro (docs/decisions/0287).
-- Layout, behind STATE: 1(1) timeline(4) begin(7) began_at(6), or 2(1), the same, leases_behind_ms(4) leases_until(6). begin: the
-- sequence at which the timeline began; 0: with the queue. began_at: when it began (ms).
-- WHY a gap of as many numbers as microseconds have passed since the timeline began: whatever was lost must not be handed out
-- again, and numbers rise more slowly than that.
-- WHY up to now_max: this primary's clock may be behind that of the last one by twice the bound. And the clocks of
-- two callers may differ by as much. Where the time is further behind, all clocks were set back:
-- the gap is a day or two then, more than what may be lost, and rises with the time, too.
-- WHY less than a thousand numbers more, by the timeline: two that continue the same state at the same ms must not begin alike.
-- Where failovers follow each other, several timelines may continue the same state: each later one is ahead of the earlier ones.
-- The revision rises by as many, so that no server keeps a configuration whose update was lost. It counts from the last revision,
-- not from the sequence: a clock that was set back leaves no gap, and the number after the sequence may be an earlier revision.
-- WHY a mark in the outbox: its offsets leave out the same numbers, and the mark has the offset that would have been next,
-- and the start of the earlier timeline. A relay that has read beyond that offset has events of writes that are lost; otherwise
-- nothing is missing. Also where there is no outbox: its first events may be lost, and a relay may have them.
-- WHY leases end by lease_now: the clock of this primary may be ahead of the one by which they were granted, and no lease may end
-- before its worker expects it. Until leases_until, when the last of the earlier timelines has ended, all of them end later
-- by leases_behind_ms. The caller has measured the difference of the clocks (ahead_ms) if it knew the earlier primary (from), and
-- otherwise has a bound for it (docs/decisions/0248).
local BEGIN_AT, LEASES_AT, DAY_MS = 6, 19, 86400000
local leases_behind_ms, leases_until = 0, 0
if #on_timeline >= LEASES_AT then leases_behind_ms, leases_until = unpick('>I4I6', on_timeline, LEASES_AT) end
local timeline = sub(ARGV[1], 12, 15)
if #timeline == 4 and timeline ~= sub(on_timeline, 2, 5) and timeline ~= '\0\0\0\0' then
  if byte(ARGV[1], 28) ~= 1 then return {-2, now} end
  local earlier, began_at = 0, S[CREATED]
  if #on_timeline > 0 then earlier, began_at = unpick('>I7I6', on_timeline, BEGIN_AT) end
  local span_ms = now_max - began_at + 2 * (skew_max_ms > 0 and skew_max_ms or CLOCK_SKEW_MAX_MS)
  if span_ms < 1 then span_ms = DAY_MS + now_max % DAY_MS end
  local gap = 1000 * span_ms + unpick('>I4', timeline) % 1000
  local begin = math.max(S[SEQ], S[ADDED]) + gap
  if outbox_keep > 0 or call('EXISTS', K_OUTBOX) == 1 then
    call('XADD', K_OUTBOX, string.format('%.0f-0', begin), 't', now, 'e', '\255' .. pack('>I7I7', S[ADDED], earlier))
  end
  S[1], S[SEQ], S[ADDED], S[ACKED] = (S[1] + gap) % 2 ^ 32, begin, begin, begin - (S[ADDED] - S[ACKED])
  local from, ahead_ms, otherwise_ms = unpick('>c4I4I4', ARGV[1], 16)
  if from ~= sub(on_timeline, 2, 5) then ahead_ms = otherwise_ms end
  if leases_until <= now - ahead_ms then leases_behind_ms = 0 end
  leases_behind_ms = leases_behind_ms + ahead_ms
  leases_until = (call('ZRANGE', K_RUNNING, -1, -1, 'WITHSCORES')[2] or 0) + leases_behind_ms
  local front = pack('>c4I7I6', timeline, begin, now)
  if leases_until > now and leases_behind_ms > 0 then
    on_timeline = '\2' .. front .. pack('>I4I6', leases_behind_ms, leases_until)
  else
    on_timeline, leases_until = '\1' .. front, 0
  end
  state_raw = pack(STATE, unpack(S, 1, 15)) .. on_timeline .. waiter
  call('SET', K_STATE, state_raw)
end
local lease_now = now < leases_until and now - leases_behind_ms or now
