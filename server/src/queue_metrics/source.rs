//! What the metrics need of a store: the states of many queues in few calls.

use crate::store::RedisStore;
use tallystone_model::limits::PAGE_ITEMS_MAX;
use tallystone_model::store::{Depth, Page, Queue};
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
    /// One page of the shards of a partition, each with its queue and its messages. A queue with several shards may be on several
    /// pages and in several partitions.
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
                items.push((queue.name.clone(), whole_depth(self, &queue).await?));
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
                let depth = match self.get_queue(queue).await {
                    Ok(queue) => whole_depth(self, &queue).await,
                    Err(refusal) => Err(refusal),
                };
                states.push(match depth {
                    Ok(depth) => Some(QueueState { depth, mark: Vec::new() }),
                    Err(Refusal::QueueNotFound { .. }) => None,
                    Err(refusal) => return Err(refusal),
                });
            }
            Ok(states)
        }
    }
}

/// The messages of all shards of a queue in a store of shards.
pub(crate) async fn whole_depth<S: Store + ?Sized>(store: &S, queue: &Queue) -> Result<Depth, Refusal> {
    let mut whole = Depth::default();
    for shard in queue.shards() {
        whole.add(&store.depth(&shard, None).await?);
    }
    Ok(whole)
}

impl QueueStates for tallystone_model::oracle::Oracle {}

impl QueueStates for RedisStore {
    async fn queue_depths(&self, partition: u16, cursor: &str) -> Result<Page<(QueueName, Depth)>, Refusal> {
        RedisStore::queue_depths(self, partition, cursor).await
    }

    async fn queue_states(&self, queues: &[QueueName]) -> Result<Vec<Option<QueueState>>, Refusal> {
        let shards: Vec<Vec<Shard>> = queues.iter().map(|queue| self.cached_shards(queue)).collect();
        let mut states = self.shard_states(&shards.concat()).await?.into_iter();
        let whole = |shards: &Vec<Shard>| {
            let mut states = states.by_ref().take(shards.len());
            let (mut depth, mut mark) = states.next().flatten()?;
            for (more, its_mark) in states.flatten() {
                depth.add(&more);
                mark.extend(its_mark);
            }
            Some(QueueState { depth, mark })
        };
        Ok(shards.iter().map(whole).collect())
    }
}
