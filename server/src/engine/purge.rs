//! Purging and deleting in bounded steps (Q15), until done or until the caller's deadline.

use super::{Engine, shard};
use tallystone_model::{QueueName, Refusal, Shard, Store};
use tokio::time::Instant;

impl<S: Store> Engine<S> {
    /// Purges what is in the queue now; answers how many messages went, and whether some are left because the
    /// deadline came first.
    pub(crate) async fn purge(
        &self,
        queue: &QueueName,
        include_running: bool,
        answer_by: Option<Instant>,
    ) -> Result<(u64, bool), Refusal> {
        let shard = shard(queue);
        let (mut purged, mut cursor) = (0, String::new());
        loop {
            let step = self.context.store.purge(&shard, include_running, &cursor).await?;
            purged += step.purged;
            cursor = step.next_cursor;
            if cursor.is_empty() || self.is_late(answer_by) {
                // A running message that is gone has freed its key.
                self.changed(&shard);
                return Ok((purged, !cursor.is_empty()));
            }
        }
    }

    /// Purges, running messages too, and deletes; anew when messages came in between.
    pub(crate) async fn delete_by_force(&self, queue: &QueueName, answer_by: Option<Instant>) -> Result<(), Refusal> {
        loop {
            match self.purge(queue, true, answer_by).await {
                // Never there, or gone by an earlier call of this kind: the store knows which.
                Ok(_) | Err(Refusal::QueueNotFound { .. }) => {}
                Err(refusal) => return Err(refusal),
            }
            match self.context.store.delete_queue(queue).await {
                Err(Refusal::QueueNotEmpty { .. }) if !self.is_late(answer_by) => {}
                answer => return answer,
            }
        }
    }

    /// A verb that does not pass through the lane has changed the shard.
    pub(crate) fn changed(&self, shard: &Shard) {
        self.lanes.wake(shard);
        self.context.sweeper.touch(shard);
    }

    fn is_late(&self, answer_by: Option<Instant>) -> bool {
        self.context.stopping.is_cancelled() || answer_by.is_some_and(|by| by <= Instant::now())
    }
}
