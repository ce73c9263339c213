//! A store under test: the trait, and access to its outbox.

use tallystone_model::oracle::Oracle;
use tallystone_model::{Event, Shard, Store};
use tallystone_server::Sharded;
use tallystone_server::store::RedisStore;

/// More shards than any queue of a test has.
const SHARDS: u16 = 8;

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

impl<S: Probe> Probe for Sharded<S> {
    /// Of all shards, one after the other.
    async fn outbox(&self, first: &Shard) -> Vec<Event> {
        let mut events = Vec::new();
        for number in 0..SHARDS {
            events.extend(self.inner().outbox(&first.sibling(number)).await);
        }
        events
    }
}
