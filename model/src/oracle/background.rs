//! The transitions that time causes: an invisibility ends, a lease expires, a terminal message is collected.

use super::record::Record;
use super::shard::QueueShard;
use crate::config::QueueConfig;
use crate::limits::SWEEP_ITEMS_MAX;
use crate::names::MessageId;
use crate::state::{Cause, State};
use crate::store::{Swept, TOO_MANY_ERRORED};

/// When time next changes this message; `None`: never.
fn due_ms(record: &Record, config: &QueueConfig) -> Option<u64> {
    match record.state {
        State::Pending => None,
        State::Invisible | State::Running => Some(record.due_ms),
        State::Completed | State::Canceled | State::Errored => Some(record.collect_at_ms(config)),
    }
}

impl QueueShard {
    pub(super) fn sweep(&mut self) -> Swept {
        let promoted = self.promote_due(SWEEP_ITEMS_MAX);
        let (expired, errored) = self.expire_due(SWEEP_ITEMS_MAX);
        let (ended_errors, dropped) = self.collect_errored(SWEEP_ITEMS_MAX);
        let collected = self.collect_due(SWEEP_ITEMS_MAX) + ended_errors;
        let next_ms = match self.has_too_many_errored() {
            true => Some(self.now_ms),
            false => self.messages.values().filter_map(|record| due_ms(record, &self.queue.config)).min(),
        };
        Swept { promoted, expired, errored, collected, dropped, next_ms, now_ms: self.now_ms }
    }

    /// Promotes messages whose invisibility has ended to pending. Returns how many.
    pub(super) fn promote_due(&mut self, limit: usize) -> u64 {
        let due = self.due(limit, |state| state == State::Invisible);
        for id in &due {
            self.step(id, State::Pending, Cause::WindowElapsed, "", |_| {});
        }
        due.len() as u64
    }

    /// Ends expired leases. Returns how many, and how many of these left an errored message.
    pub(super) fn expire_due(&mut self, limit: usize) -> (u64, u64) {
        let due = self.due(limit, |state| state == State::Running);
        let mut errored = 0;
        for id in &due {
            let to = self.after_attempt(&self.messages[id], None);
            self.end_lease(id, to, Cause::LeaseExpired, "lease expired");
            errored += u64::from(self.messages[id].state == State::Errored);
        }
        (due.len() as u64, errored)
    }

    fn collect_due(&mut self, limit: usize) -> u64 {
        let due = self.due(limit, |state| state.is_terminal() && state != State::Errored);
        for id in &due {
            self.collect_and_remember(id, "");
        }
        due.len() as u64
    }

    /// Collects errored messages, the oldest first: past their retention, or as long as the queue has too many (Q22).
    /// Returns how many, and how many of these before their retention ended.
    fn collect_errored(&mut self, limit: usize) -> (u64, u64) {
        let (mut collected, mut dropped) = (0, 0);
        while collected < limit as u64
            && let Some(oldest) = self.errored().min_by_key(|record| (record.state_since_ms, record.sequence))
        {
            let is_due = oldest.collect_at_ms(&self.queue.config) <= self.now_ms;
            if !is_due && !self.has_too_many_errored() {
                break;
            }
            let id = oldest.content.id.clone();
            self.collect_and_remember(&id, if is_due { "" } else { TOO_MANY_ERRORED });
            collected += 1;
            dropped += u64::from(!is_due);
        }
        (collected, dropped)
    }

    fn has_too_many_errored(&self) -> bool {
        let config = &self.queue.config;
        let bytes: u64 = self.errored().map(|record| record.content.payload.len() as u64).sum();
        self.errored().count() as u64 > self.share(config.max_errored) || bytes > self.share(config.max_errored_bytes)
    }

    fn errored(&self) -> impl Iterator<Item = &Record> {
        self.messages.values().filter(|record| record.state == State::Errored)
    }

    /// The messages in these states that are due, the longest due first.
    fn due(&self, limit: usize, in_state: impl Fn(State) -> bool) -> Vec<MessageId> {
        let mut due: Vec<(u64, &MessageId)> = self
            .messages
            .values()
            .filter(|record| in_state(record.state))
            .filter_map(|record| Some((due_ms(record, &self.queue.config)?, &record.content.id)))
            .filter(|(due_ms, _)| *due_ms <= self.now_ms)
            .collect();
        due.sort();
        due.into_iter().take(limit).map(|(_, id)| id.clone()).collect()
    }
}
