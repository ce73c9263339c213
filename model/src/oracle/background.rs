//! The transitions that time causes: an invisibility ends, a lease expires, a terminal message is collected.

use super::record::Record;
use super::shard::QueueShard;
use crate::config::QueueConfig;
use crate::limits::SWEEP_ITEMS_MAX;
use crate::names::MessageId;
use crate::state::{Cause, State};
use crate::store::Swept;

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
        Swept {
            promoted: self.promote_due(SWEEP_ITEMS_MAX),
            expired: self.expire_due(SWEEP_ITEMS_MAX),
            collected: self.collect_due(SWEEP_ITEMS_MAX),
            next_ms: self.messages.values().filter_map(|record| due_ms(record, &self.queue.config)).min(),
            now_ms: self.now_ms,
        }
    }

    /// Promotes messages whose invisibility has ended to pending. Returns how many.
    pub(super) fn promote_due(&mut self, limit: usize) -> u64 {
        let due = self.due(limit, |state| state == State::Invisible);
        for id in &due {
            self.step(id, State::Pending, Cause::WindowElapsed, "", |_| {});
        }
        due.len() as u64
    }

    /// Ends expired leases. Returns how many.
    pub(super) fn expire_due(&mut self, limit: usize) -> u64 {
        let due = self.due(limit, |state| state == State::Running);
        for id in &due {
            let to = self.after_attempt(&self.messages[id], None);
            self.end_lease(id, to, Cause::LeaseExpired, "lease expired");
        }
        due.len() as u64
    }

    fn collect_due(&mut self, limit: usize) -> u64 {
        let due = self.due(limit, State::is_terminal);
        for id in &due {
            self.collect(id);
        }
        due.len() as u64
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
