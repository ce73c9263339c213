//! The last attempts of a message; `lib/attempts.lua` has the layout.

use super::head::Head;
use super::reader::{Reader, Unreadable};
use tallystone_model::State;
use tallystone_model::limits::ATTEMPTS_KEPT;
use tallystone_model::message::Attempt;

/// The attempts of a record (empty: none), and the one that is in the head.
pub(super) fn last_attempts(record: &[u8], head: &Head) -> Result<Vec<Attempt>, Unreadable> {
    let mut reader = Reader(record);
    let mut attempts = Vec::new();
    let count = if record.is_empty() { 0 } else { reader.number(1)? };
    for _ in 0..count {
        attempts.push(Attempt {
            number: reader.number(2)? as u32,
            fencing_token: reader.number(7)?,
            leased_at_ms: reader.number(6)?,
            ended_at_ms: reader.number(6)?,
            state: reader.state()?.ok_or(Unreadable("state"))?,
            worker: reader.text()?,
            reason: reader.text()?,
        });
    }
    let in_head = |leased_at_ms, ended_at_ms| Attempt {
        number: head.attempts,
        fencing_token: head.fencing_token,
        worker: head.worker.clone(),
        leased_at_ms,
        ended_at_ms,
        state: head.state,
        reason: String::new(),
    };
    match head.state {
        State::Running => attempts.push(in_head(head.since_ms, 0)),
        // 0: version 0.1 did not keep the start of the run.
        State::Completed if head.due_ms > 0 => attempts.push(in_head(head.due_ms, head.since_ms)),
        _ => {}
    }
    attempts.drain(..attempts.len().saturating_sub(ATTEMPTS_KEPT));
    Ok(attempts)
}
