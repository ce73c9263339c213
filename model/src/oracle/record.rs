//! One message of the oracle.

use crate::config::QueueConfig;
use crate::limits::ATTEMPTS_KEPT;
use crate::message::{Attempt, Lease, Message, NewMessage};
use crate::refusal::Refusal;
use crate::state::{Cause, State};
use crate::store::{LeaseRef, Transition};
use bytes::Bytes;

/// How a lease ended: a repetition of the call that ended it gets this result (Q10).
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) fencing_token: u64,
    pub(super) by: Cause,
    pub(super) transition: Transition,
}

/// A message: its content as sent, and its mutable state.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// As sent, with `coalesce` cleared; a repeated Enqueue is compared with it.
    pub(super) content: NewMessage,
    /// Orders messages of equal priority.
    pub(super) sequence: u64,
    pub(super) enqueued_at_ms: u64,
    pub(super) state: State,
    pub(super) version: u32,
    pub(super) state_since_ms: u64,
    /// Invisible: visible at; running: lease expires at; else 0.
    pub(super) due_ms: u64,
    /// The current priority; the sender's is in `content`.
    pub(super) priority: i64,
    pub(super) attempts: u32,
    /// The fencing token of the current or last lease; 0 before the first.
    pub(super) fencing_token: u64,
    /// The worker of the current or last lease; empty before the first.
    pub(super) worker: String,
    /// The original length of the current or last lease.
    pub(super) granted_ms: u64,
    /// The request id of the current lease's last extension.
    pub(super) extension_id: String,
    /// The last reason of Release or Cancel, or "lease expired".
    pub(super) reason: String,
    /// It becomes pending again when it completes (Q12).
    pub(super) coalesced: bool,
    /// Redrive made it pending, and it was not leased since.
    pub(super) redriven: bool,
    /// How the last lease ended.
    pub(super) ended: Option<Ended>,
    /// The result of a completed message.
    pub(super) result: Bytes,
    /// The last attempts that have ended.
    pub(super) ended_attempts: Vec<Attempt>,
}

impl Record {
    /// The order in which messages run: lower priority first, then the order of arrival (Q3).
    pub(super) fn urgency(&self) -> (i64, u64) {
        (self.priority, self.sequence)
    }

    /// The exclusivity value, in an exclusive queue.
    pub(super) fn value(&self, config: &QueueConfig) -> Option<&str> {
        config.queue_type.value_of(&self.content.metadata)
    }

    pub(super) fn max_attempts(&self, config: &QueueConfig) -> u32 {
        self.content.max_attempts.unwrap_or(config.max_attempts)
    }

    /// Whether this fencing token holds the message now (Q11).
    pub(super) fn is_held_by(&self, fencing_token: u64, now_ms: u64) -> bool {
        self.state == State::Running && self.fencing_token == fencing_token && now_ms < self.due_ms
    }

    /// The result of `verb` with a fencing token that does not hold the message. If the same verb ended that lease, and no
    /// other lease has ended since, it is the first result; else the lease is lost.
    pub(super) fn ended_as(&self, fencing_token: u64, verb: Cause) -> Result<Transition, Refusal> {
        match &self.ended {
            Some(ended) if ended.fencing_token == fencing_token && ended.by == verb => Ok(ended.transition),
            _ => Err(self.lease_lost()),
        }
    }

    pub(super) fn lease_lost(&self) -> Refusal {
        Refusal::LeaseLost { id: self.content.id.to_string(), state: self.state }
    }

    pub(super) fn transition(&self) -> Transition {
        Transition { state: self.state, version: self.version }
    }

    pub(super) fn wrong_state(&self) -> Refusal {
        Refusal::WrongState { id: self.content.id.to_string(), state: self.state }
    }

    /// The current or last lease.
    pub(super) fn lease_ref(&self) -> LeaseRef {
        LeaseRef { id: self.content.id.clone(), fencing_token: self.fencing_token }
    }

    /// When a terminal message may be collected.
    pub(super) fn collect_at_ms(&self, config: &QueueConfig) -> u64 {
        self.state_since_ms
            + match self.state {
                State::Errored => config.errored_retention_ms,
                _ => config.terminal_retention_ms,
            }
    }

    /// The lease of a running message.
    pub(super) fn lease(&self, config: &QueueConfig) -> Lease {
        Lease {
            id: self.content.id.clone(),
            payload: self.content.payload.clone(),
            priority: self.priority,
            metadata: self.content.metadata.clone(),
            fencing_token: self.fencing_token,
            attempt: self.attempts,
            max_attempts: self.max_attempts(config),
            enqueued_at_ms: self.enqueued_at_ms,
            leased_at_ms: self.state_since_ms,
            expires_at_ms: self.due_ms,
            left_ms: self.due_ms.saturating_sub(self.state_since_ms),
            version: self.version,
        }
    }

    /// The current lease as an attempt that ends in this state.
    pub(super) fn attempt(&self, state: State, ended_at_ms: u64, reason: &str) -> Attempt {
        Attempt {
            number: self.attempts,
            fencing_token: self.fencing_token,
            worker: self.worker.clone(),
            leased_at_ms: self.state_since_ms,
            ended_at_ms,
            state,
            reason: reason.to_owned(),
        }
    }

    /// The last attempts, the current one included.
    pub(super) fn last_attempts(&self) -> Vec<Attempt> {
        let current = (self.state == State::Running).then(|| self.attempt(State::Running, 0, ""));
        let mut all: Vec<Attempt> = self.ended_attempts.iter().cloned().chain(current).collect();
        all.drain(..all.len().saturating_sub(ATTEMPTS_KEPT));
        all
    }

    /// The message as callers see it, in a list.
    pub(super) fn message(&self, config: &QueueConfig) -> Message {
        Message {
            id: self.content.id.clone(),
            state: self.state,
            version: self.version,
            payload: self.content.payload.clone(),
            priority: self.priority,
            priority_class: self.content.priority_class.clone(),
            metadata: self.content.metadata.clone(),
            lease_ms: self.content.lease_ms,
            invisibility_ms: self.content.invisibility_ms,
            max_attempts: self.max_attempts(config),
            attempts: self.attempts,
            enqueued_at_ms: self.enqueued_at_ms,
            state_since_ms: self.state_since_ms,
            due_ms: if self.state.is_terminal() { self.collect_at_ms(config) } else { self.due_ms },
            fencing_token: self.fencing_token,
            worker: self.worker.clone(),
            reason: self.reason.clone(),
            coalesced: self.coalesced,
            result: self.result.clone(),
            last_attempts: Vec::new(),
        }
    }
}
