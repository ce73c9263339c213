//! Purging and deleting in bounded steps (Q15), until done or until the caller's deadline.

use super::{Engine, shard};
use tallystone_model::{QueueName, Refusal, Shard, Store};
use tokio::time::Instant;

impl<S: Store> Engine<S> {
    /// Purges the messages that are in the queue now. Returns how many were removed, and whether some are left because
    /// the deadline `answer_by` passed.
    pub(crate) async fn purge(
        &self,
        queue: &QueueName,
        include_running: bool,
        answer_by: Option<Instant>,
    ) -> Result<(u64, bool), Refusal> {
        let shard = shard(queue);
        let (mut purged, mut cursor) = (0, String::new());
        loop {
            let step = self.context.store.purge(&shard, include_running, &cursor).await;
            // The steps before this one have removed messages.
            let step = if cursor.is_empty() { step? } else { step.map_err(Refusal::after_an_earlier_try)? };
            purged += step.purged;
            cursor = step.next_cursor;
            if cursor.is_empty() || self.is_late(answer_by) {
                // A purged running message has freed its exclusivity value.
                self.changed(&shard);
                return Ok((purged, !cursor.is_empty()));
            }
        }
    }

    /// Purges the queue, running messages included, and deletes it. Starts over if messages arrived between the two.
    pub(crate) async fn delete_by_force(&self, queue: &QueueName, answer_by: Option<Instant>) -> Result<(), Refusal> {
        let mut has_purged = false;
        let after = |refusal: Refusal, has_purged| if has_purged { refusal.after_an_earlier_try() } else { refusal };
        loop {
            match self.purge(queue, true, answer_by).await {
                Ok((purged, _)) => has_purged |= purged > 0,
                // The queue never existed, or an earlier call deleted it: delete_queue finds out which.
                Err(Refusal::QueueNotFound { .. }) => {}
                Err(refusal) => return Err(after(refusal, has_purged)),
            }
            match self.context.store.delete_queue(queue).await {
                Err(Refusal::QueueNotEmpty { .. }) if !self.is_late(answer_by) => {}
                answer => return answer.map_err(|refusal| after(refusal, has_purged)),
            }
        }
    }

    /// Wakes the lane and the sweeper after a verb that bypasses the lane has changed the shard.
    pub(crate) fn changed(&self, shard: &Shard) {
        self.lanes.wake(shard);
        self.context.sweeper.touch(shard);
    }

    fn is_late(&self, answer_by: Option<Instant>) -> bool {
        self.context.stopping.is_cancelled() || answer_by.is_some_and(|by| by <= Instant::now())
    }
}
