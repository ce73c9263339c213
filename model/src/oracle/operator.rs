//! Cancel, Redrive, UpdateMessage, Purge.

use super::record::Record;
use super::shard::QueueShard;
use crate::limits::SWEEP_ITEMS_MAX;
use crate::names::MessageId;
use crate::refusal::Refusal;
use crate::state::{Cause, State};
use crate::store::{Cancellation, LeaseRef, MessagePatch, Purged, Transition};

impl QueueShard {
    pub(super) fn cancel(&mut self, cancellation: &Cancellation) -> Result<Transition, Refusal> {
        let Cancellation { id, fencing_token, force, reason } = cancellation;
        let record = self.record(id)?;
        if let Ok(transition) = record.ended_as(*fencing_token, Cause::Cancel) {
            return Ok(transition);
        }
        let by_holder = record.is_held_by(*fencing_token, self.now_ms);
        match record.state {
            State::Canceled => return Ok(record.transition()),
            State::Completed | State::Errored => return Err(record.wrong_state()),
            _ if by_holder || *force => {}
            // A fencing token that does not hold the message belongs to a dead lease, whatever the state.
            _ if *fencing_token != 0 => return record.ended_as(*fencing_token, Cause::Cancel),
            State::Running => return Err(record.wrong_state()),
            State::Pending | State::Invisible => {}
        }
        if record.state == State::Running {
            let lease = record.lease_ref();
            self.revoked.extend((!by_holder).then_some(lease));
            return Ok(self.end_lease(id, (State::Canceled, 0), Cause::Cancel, reason));
        }
        Ok(self.step(id, State::Canceled, Cause::Cancel, reason, |_| {}))
    }

    pub(super) fn redrive(&mut self, id: &MessageId) -> Result<Transition, Refusal> {
        let record = self.record(id)?;
        match record.state {
            State::Errored | State::Canceled => {}
            State::Pending if record.redriven => return Ok(record.transition()),
            _ => return Err(record.wrong_state()),
        }
        self.has_room()?;
        Ok(self.step(id, State::Pending, Cause::Redrive, "", |record| {
            record.attempts = 0;
            record.redriven = true;
        }))
    }

    pub(super) fn update_message(&mut self, id: &MessageId, patch: &MessagePatch) -> Result<Transition, Refusal> {
        let record = self.record(id)?;
        if record.state.is_terminal() || (record.state == State::Running && patch.visible_at_ms.is_some()) {
            return Err(record.wrong_state());
        }
        let Some((priority, to, due_ms)) = self.updated(record, patch) else { return Ok(record.transition()) };
        Ok(self.step(id, to, Cause::UpdateMessage, "", |record| {
            record.priority = priority;
            record.due_ms = due_ms;
        }))
    }

    /// The priority, state and due time that a message gets from an update; `None`: the update changes nothing.
    pub(super) fn updated(&self, record: &Record, patch: &MessagePatch) -> Option<(i64, State, u64)> {
        let (to, due_ms) = match patch.visible_at_ms {
            None => (record.state, record.due_ms),
            Some(at_ms) if at_ms > self.now_ms => (State::Invisible, at_ms),
            Some(_) => (State::Pending, 0),
        };
        let updated = (patch.priority.unwrap_or(record.priority), to, due_ms);
        (updated != (record.priority, record.state, record.due_ms)).then_some(updated)
    }

    /// The cursor is the shard's sequence number at the first step.
    pub(super) fn purge(&mut self, include_running: bool, cursor: &str) -> Result<Purged, Refusal> {
        let until_sequence = match cursor {
            "" => self.sequence,
            cursor => cursor.parse().map_err(|_| Refusal::invalid("cursor", "was not made by this purge"))?,
        };
        let mut doomed: Vec<(u64, State, LeaseRef)> = self
            .messages
            .values()
            .filter(|r| r.sequence <= until_sequence && (include_running || r.state != State::Running))
            .map(|record| (record.sequence, record.state, record.lease_ref()))
            .collect();
        doomed.sort_by_key(|(sequence, ..)| *sequence);
        let more = doomed.len() > SWEEP_ITEMS_MAX;
        doomed.truncate(SWEEP_ITEMS_MAX);
        for (_, state, lease) in &doomed {
            if *state == State::Running {
                self.revoked.push(lease.clone());
            }
            if state.is_live() {
                self.step(&lease.id, State::Canceled, Cause::Purge, "", |record| record.coalesced = false);
            }
            self.collect(&lease.id, "");
        }
        let next_cursor = if more { until_sequence.to_string() } else { String::new() };
        Ok(Purged { purged: doomed.len() as u64, next_cursor })
    }
}
