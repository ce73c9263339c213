//! The verbs of a lease's holder: Complete, ExtendLease, Release (Q10, Q11).

use super::record::Record;
use super::shard::QueueShard;
use crate::refusal::Refusal;
use crate::state::{Cause, State};
use crate::store::{Completion, Extended, Extension, Release, Transition, Verdict};

impl QueueShard {
    pub(super) fn complete(&mut self, completion: Completion) -> Result<Transition, Refusal> {
        let Completion { lease, result } = &completion;
        let record = self.record(&lease.id)?;
        if !record.is_held_by(lease.fencing_token, self.now_ms) {
            return record.ended_as(lease.fencing_token, Cause::Complete);
        }
        let to = if record.coalesced { State::Pending } else { State::Completed };
        let forgets = self.queue.config.forgets_completed(&self.queue.name);
        // Before the transition: its event has the result.
        if let Some(record) = self.messages.get_mut(&lease.id)
            && to == State::Completed
            && !forgets
        {
            record.result = result.clone();
        }
        let completed = self.end_lease(&lease.id, (to, 0), Cause::Complete, "");
        if to == State::Completed && forgets {
            self.collect(&lease.id, "");
        }
        Ok(completed)
    }

    pub(super) fn extend_lease(&mut self, extension: &Extension) -> Result<Extended, Refusal> {
        let id = &extension.lease.id;
        let record = self.record(id)?;
        if !record.is_held_by(extension.lease.fencing_token, self.now_ms) {
            return Err(Refusal::LeaseLost { id: id.to_string(), state: record.state });
        }
        if !extension.request_id.is_empty() && extension.request_id == record.extension_id {
            return Ok(Extended { expires_at_ms: record.due_ms });
        }
        let expires_at_ms = self.now_ms + extension.lease_ms.unwrap_or(record.granted_ms);
        self.step(id, State::Running, Cause::ExtendLease, "", |record| {
            record.due_ms = expires_at_ms;
            record.extension_id = extension.request_id.clone();
        });
        Ok(Extended { expires_at_ms })
    }

    pub(super) fn release(&mut self, release: &Release) -> Result<Transition, Refusal> {
        let record = self.record(&release.lease.id)?;
        if !record.is_held_by(release.lease.fencing_token, self.now_ms) {
            let first = record.ended_as(release.lease.fencing_token, Cause::Release)?;
            // An earlier Release that did not carry out this verdict has won: the caller must learn that.
            return match release.verdict.state() {
                Some(state) if state != first.state => Err(record.lease_lost()),
                _ => Ok(first),
            };
        }
        if release.verdict == Verdict::Undelivered {
            return Ok(self.take_lease_back(&release.lease.id, &release.reason));
        }
        let to = match release.verdict.state() {
            None => self.after_attempt(record, release.delay_ms),
            Some(state) => (state, 0),
        };
        Ok(self.end_lease(&release.lease.id, to, Cause::Release, &release.reason))
    }

    /// The state of a message after a failed attempt, and when that state ends.
    pub(super) fn after_attempt(&self, record: &Record, delay_ms: Option<u64>) -> (State, u64) {
        let config = &self.queue.config;
        if record.attempts >= record.max_attempts(config) && !record.coalesced {
            return (State::Errored, 0);
        }
        self.after(delay_ms.unwrap_or_else(|| config.retry_backoff.delay_ms(record.attempts, record.fencing_token)))
    }
}
