//! Shards that their queues do not have: a failover has lost the deletion of a queue that was created again with fewer shards
//! (docs/decisions/0217), or a server has died while it removed shards that a change of their number had emptied (0268).

use super::copies::Copies;
use super::stored::Stored;
use super::view::View;
use tallystone_model::{Refusal, Shard};

impl Copies<'_> {
    /// Removes such shards of the queues that this server uses. A server that has the earlier queue in mind could send messages there,
    /// which no Dequeue would find. Returns how many are left because they have messages.
    pub(super) async fn remove_strays(&self) -> Result<usize, Refusal> {
        let mut left = 0;
        for partition in self.0 {
            let mut cursor = String::new();
            loop {
                let page = partition.other_shards(&cursor).await?;
                for shard in &page.items {
                    left += usize::from(self.remove_stray(shard).await?);
                }
                if page.next_cursor.is_empty() {
                    break;
                }
                cursor = page.next_cursor;
            }
        }
        Ok(left)
    }

    /// Returns whether it is a stray that has messages.
    async fn remove_stray(&self, shard: &Shard) -> Result<bool, Refusal> {
        let first = shard.sibling(0);
        let is_within = |view: &View| view.stored.layout().has(shard.number);
        // Of queues that this server does not use, it sends no messages anywhere.
        if self.of(&first).cached(&first).is_none_or(|view| is_within(&view)) {
            return Ok(false);
        }
        let partition = self.of(shard);
        // The stray before the first shard: if it were of a later queue, that one would be there.
        let found = match partition.read(shard).await {
            Ok((view, _)) => view,
            Err(Refusal::QueueNotFound { .. }) => return Ok(false),
            Err(refusal) => return Err(refusal),
        };
        let queue = match self.of(&first).read(&first).await {
            Ok((view, _)) => view,
            // What the queue's other shards have is kept for its next creation.
            Err(Refusal::QueueNotFound { .. }) => return Ok(false),
            Err(refusal) => return Err(refusal),
        };
        let Some(member) = found.stored.member.clone() else { return Ok(false) };
        if is_within(&queue) || queue.stored.deleting_since_ms().is_some() {
            return Ok(false);
        }
        let is_ours = queue.stored.is_of(&member.queue_id, queue.created_at_ms);
        if is_ours && found.stored.spread_version() > queue.stored.spread_version() {
            // The first shard has lost a change of the number of shards.
            let adopted = self.adopt(&first, &found.stored).await?;
            self.follow_all(&first, &adopted).await?;
            return Ok(false);
        }
        // No message is of this shard by the layout of its queue: from here on every server is refused.
        let close = |stored: &mut Stored| {
            if stored.member.as_ref() == Some(&member) && stored.spread == found.stored.spread {
                stored.config.shards = queue.config().shards;
                stored.spread.clone_from(&queue.stored.spread);
            }
            Ok(())
        };
        partition.change(shard, close).await?;
        match partition.delete_shard(shard, Some(&member)).await {
            Ok(()) | Err(Refusal::QueueNotFound { .. }) => Ok(false),
            Err(Refusal::QueueNotEmpty { .. }) => {
                tracing::warn!(shard = shard.tag(), "messages are in a shard that their queue does not have");
                Ok(true)
            }
            Err(refusal) => Err(refusal),
        }
    }
}
