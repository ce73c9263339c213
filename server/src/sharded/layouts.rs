//! Servers that have an earlier layout of a queue in mind: the queue was deleted and created again with another number of shards, or
//! the number was changed. Their calls may go to shards that never had the message (docs/decisions/0216).

use super::cursor::Cursor;
use super::store::Sharded;
use futures::future::try_join_all;
use tallystone_model::{Layout, Refusal, Shard, Store};

impl<S: Store> Sharded<S> {
    /// Another shard than the first is not a whole queue.
    pub(super) async fn layout_of(&self, shard: &Shard) -> Result<Layout, Refusal> {
        match shard.number {
            0 => {
                let layout = self.inner.layout(shard).await;
                let has_no_others = match &layout {
                    Ok(layout) => layout.is_plain(),
                    Err(refusal) => matches!(refusal, Refusal::QueueNotFound { .. }),
                };
                if has_no_others {
                    self.known.forget(&shard.queue);
                }
                layout
            }
            _ => Ok(Layout::plain()),
        }
    }

    /// The answers of all shards of a queue to a call that reads. The first one has said with its answer what the layout is.
    pub(super) async fn of_all<T, F: Future<Output = Result<T, Refusal>> + Send>(
        &self,
        first: &Shard,
        read: impl Fn(Shard) -> F + Send + Sync,
    ) -> Result<Vec<T>, Refusal> {
        let (read, mut layout) = (&read, self.layout_of(first).await?);
        loop {
            let answers = if layout.is_plain() {
                read(first.clone()).await.map(|answer| vec![answer])
            } else {
                let queue = self.queue(first, &layout);
                try_join_all(queue.numbers().map(|number| queue.on_time(number, read))).await
            };
            let current = self.layout_of(first).await?;
            if current == layout {
                return answers;
            }
            layout = current;
        }
    }

    /// One step of a walk over the shards of a queue with this layout. `changes`: it may change messages.
    pub(super) async fn step<T, F: Future<Output = Result<T, Refusal>> + Send>(
        &self,
        first: &Shard,
        layout: &Layout,
        cursor: &Cursor,
        changes: bool,
        step: impl Fn(Shard) -> F + Send + Sync,
    ) -> Result<T, Refusal> {
        if layout.is_plain() {
            return step(first.clone()).await;
        }
        let queue = self.queue(first, layout);
        let answer = queue.on_time(cursor.number, step).await;
        if changes {
            // A step without an answer may have changed something, too.
            queue.changes(cursor.number);
        }
        answer
    }

    /// Where the walk goes on after such a step, which may have read a later layout from the first shard.
    pub(super) async fn behind(&self, first: &Shard, used: Layout, cursor: &Cursor, within: String) -> String {
        let layout = self.layout_of(first).await.unwrap_or(used);
        Cursor::shown(cursor.behind(within, &layout), &layout)
    }

    /// The current layout of the queue, if it is another one than that of a call which found no message, or no lease, where that
    /// layout says: then the call is to be made again.
    pub(super) async fn layout_since(&self, first: &Shard, used: &Layout) -> Option<Layout> {
        // A call of the only shard has read the current layout.
        if !used.is_plain() {
            let store = &*self.inner;
            let read = |first: Shard| async move { store.get_queue(&first.queue).await };
            self.queue(first, used).on_time(0, read).await.ok()?;
        }
        self.layout_of(first).await.ok().filter(|current| current != used)
    }
}

/// Whether a refusal may come from a shard that never had the message.
pub(super) fn says_not_there(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::MessageNotFound { .. } | Refusal::LeaseLost { .. }) || refusal.is_by_earlier_layout()
}
