-- attempts: the attempts of a message that have ended without success, at most ATTEMPTS_KEPT, in one record (Q22):
--   count(1), then of each, the oldest first: number(2) fencing token(7) leased_at(6) ended_at(6) state that it led to(1),
--   worker and reason behind their lengths(1)
-- The attempt that runs, or that completed the message, is in the head: its `due` is then when the run began.
-- WHY not all of them: the first attempt of most messages is the only one, and costs no write here.
local TEXTS_AT = 23 -- where the texts of an attempt begin

-- The current run, which ends now. RETURNS the bytes that it has read and written.
local function remember_attempt(m, to, reason)
  local kept = call('HGET', K_ATTEMPTS, m.id)
  local count, rest = kept and byte(kept) or 0, kept and sub(kept, 2) or ''
  if count == ATTEMPTS_KEPT then
    local reason_at = TEXTS_AT + 1 + byte(rest, TEXTS_AT)
    count, rest = count - 1, sub(rest, reason_at + 1 + byte(rest, reason_at))
  end
  local attempt = pack('>I2I7I6I6BBc0Bc0', m.attempts, m.fencing_token, m.since, now, to, #m.worker, m.worker, #reason, reason)
  call('HSET', K_ATTEMPTS, m.id, char(count + 1) .. rest .. attempt)
  return 2 * #rest + #attempt
end
