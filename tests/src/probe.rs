//! A store under test: the trait, and access to its outbox.

use tallystone_model::oracle::Oracle;
use tallystone_model::{Event, Shard, Store};
use tallystone_server::store::RedisStore;

/// A [`Store`] that shows what it has left in its outbox.
pub trait Probe: Store {
    /// Every event of the shard so far, in order.
    fn outbox(&self, shard: &Shard) -> impl Future<Output = Vec<Event>> + Send;
}

impl Probe for Oracle {
    async fn outbox(&self, shard: &Shard) -> Vec<Event> {
        self.events(shard)
    }
}

impl Probe for RedisStore {
    async fn outbox(&self, shard: &Shard) -> Vec<Event> {
        self.outbox_events(shard).await.expect("the outbox")
    }
}
