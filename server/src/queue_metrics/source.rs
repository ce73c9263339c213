//! What the metrics need of a store: the states of many queues in few calls.

use crate::store::RedisStore;
use tallystone_model::limits::PAGE_ITEMS_MAX;
use tallystone_model::store::{Depth, Page};
use tallystone_model::{QueueName, Refusal, Shard, Store};

/// The state of one queue.
pub struct QueueState {
    /// Its messages.
    pub depth: Depth,
    /// While it stays the same, no message of the queue has moved. Empty: the store does not say.
    pub mark: Vec<u8>,
}

/// Reads the states of many queues in few calls of the store.
pub trait QueueStates: Store {
    /// One page of the queues of a partition with their messages, in order of name.
    fn queue_depths(
        &self,
        partition: u16,
        cursor: &str,
    ) -> impl Future<Output = Result<Page<(QueueName, Depth)>, Refusal>> + Send {
        let _ = partition;
        async move {
            let page = self.list_queues("", cursor, PAGE_ITEMS_MAX).await?;
            let mut items = Vec::with_capacity(page.items.len());
            for queue in page.items {
                let depth = self.depth(&Shard::first(&queue.name), None).await?;
                items.push((queue.name, depth));
            }
            Ok(Page { items, next_cursor: page.next_cursor })
        }
    }

    /// The states of these queues, in their order; `None`: there is no such queue.
    fn queue_states(
        &self,
        queues: &[QueueName],
    ) -> impl Future<Output = Result<Vec<Option<QueueState>>, Refusal>> + Send {
        async move {
            let mut states = Vec::with_capacity(queues.len());
            for queue in queues {
                states.push(match self.depth(&Shard::first(queue), None).await {
                    Ok(depth) => Some(QueueState { depth, mark: Vec::new() }),
                    Err(Refusal::QueueNotFound { .. }) => None,
                    Err(refusal) => return Err(refusal),
                });
            }
            Ok(states)
        }
    }
}

impl QueueStates for tallystone_model::oracle::Oracle {}

impl QueueStates for RedisStore {
    async fn queue_depths(&self, partition: u16, cursor: &str) -> Result<Page<(QueueName, Depth)>, Refusal> {
        RedisStore::queue_depths(self, partition, cursor).await
    }

    async fn queue_states(&self, queues: &[QueueName]) -> Result<Vec<Option<QueueState>>, Refusal> {
        let shards: Vec<Shard> = queues.iter().map(Shard::first).collect();
        let states = self.shard_states(&shards).await?;
        Ok(states.into_iter().map(|state| state.map(|(depth, mark)| QueueState { depth, mark })).collect())
    }
}
