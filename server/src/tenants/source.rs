//! What the quotas need of a store: how much it keeps for the queues of one prefix.

use crate::queue_metrics::whole_depth;
use crate::store::{Kept, RedisStore};
use futures::future::BoxFuture;
use tallystone_model::limits::PAGE_ITEMS_MAX;
use tallystone_model::{Refusal, Store};

/// Reads how much is kept for the queues of one prefix.
pub trait KeptMessages: Store {
    /// Of each partition: their number, their messages and, on request, the bytes of these.
    fn kept(&self, prefix: &str, with_bytes: bool) -> impl Future<Output = Vec<Result<Kept, Refusal>>> + Send {
        async move { vec![kept_by_queues(self, prefix, with_bytes).await] }
    }
}

/// What a store of one partition keeps, read queue by queue.
async fn kept_by_queues<S: Store + ?Sized>(store: &S, prefix: &str, with_bytes: bool) -> Result<Kept, Refusal> {
    let (mut kept, mut cursor) = (Kept::default(), String::new());
    loop {
        let page = store.list_queues(prefix, &cursor, PAGE_ITEMS_MAX).await?;
        for queue in page.items {
            let depth = match whole_depth(store, &queue).await {
                Ok(depth) => depth,
                Err(Refusal::QueueNotFound { .. }) => continue,
                Err(refusal) => return Err(refusal),
            };
            // A store that does not measure contents says how many there are.
            let bytes = if with_bytes { depth.kept() } else { 0 };
            kept.add(&Kept { queues: 1, messages: depth.kept(), bytes });
        }
        if page.next_cursor.is_empty() {
            return Ok(kept);
        }
        cursor = page.next_cursor;
    }
}

impl KeptMessages for tallystone_model::oracle::Oracle {}

impl KeptMessages for RedisStore {
    async fn kept(&self, prefix: &str, with_bytes: bool) -> Vec<Result<Kept, Refusal>> {
        RedisStore::kept(self, prefix, with_bytes).await
    }
}

/// The store as the quotas see it, whatever its type.
pub(super) trait Source: Send + Sync {
    /// What each partition keeps for the queues of this prefix; the bytes only on request.
    fn kept<'a>(&'a self, prefix: &'a str, with_bytes: bool) -> BoxFuture<'a, Vec<Result<Kept, Refusal>>>;

    /// The number of indexes that these queues declare.
    fn declared_indexes<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<u64, Refusal>>;
}

impl<S: KeptMessages> Source for S {
    fn kept<'a>(&'a self, prefix: &'a str, with_bytes: bool) -> BoxFuture<'a, Vec<Result<Kept, Refusal>>> {
        Box::pin(KeptMessages::kept(self, prefix, with_bytes))
    }

    fn declared_indexes<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<u64, Refusal>> {
        Box::pin(declared_indexes(self, prefix))
    }
}

async fn declared_indexes<S: Store>(store: &S, prefix: &str) -> Result<u64, Refusal> {
    let (mut declared, mut cursor) = (0, String::new());
    loop {
        let page = store.list_queues(prefix, &cursor, PAGE_ITEMS_MAX).await?;
        declared += page.items.iter().map(|queue| queue.config.indexes.len() as u64).sum::<u64>();
        if page.next_cursor.is_empty() {
            return Ok(declared);
        }
        cursor = page.next_cursor;
    }
}
