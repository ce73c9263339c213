//! A store under test: the trait, and access to its outbox.

use tallystone_model::oracle::Oracle;
use tallystone_model::{Event, QueueName, Shard, Store};
use tallystone_server::Sharded;
use tallystone_server::store::RedisStore;

/// No queue of a test has a shard of this number or a higher one.
pub const SHARD_NUMBERS: u16 = 100;

/// A [`Store`] that shows what it has left in its outbox, and whose background job a test runs.
pub trait Probe: Store {
    /// Every event of the shard so far, in order.
    fn outbox(&self, shard: &Shard) -> impl Future<Output = Vec<Event>> + Send;

    /// Removes the earlier shards of a queue whose number of shards was changed, if they are empty.
    fn finish(&self, queue: &QueueName) -> impl Future<Output = ()> + Send;
}

impl Probe for Oracle {
    async fn outbox(&self, shard: &Shard) -> Vec<Event> {
        self.events(shard)
    }

    async fn finish(&self, queue: &QueueName) {
        self.finish(queue).expect("a queue");
    }
}

impl Probe for RedisStore {
    async fn outbox(&self, shard: &Shard) -> Vec<Event> {
        self.outbox_events(shard).await.expect("the outbox")
    }

    /// As the minutely check of a server.
    async fn finish(&self, _queue: &QueueName) {
        assert_eq!(self.check_shards().await, Ok(0));
    }
}

impl<S: Probe> Probe for Sharded<S> {
    /// Of all shards, one after the other.
    async fn outbox(&self, first: &Shard) -> Vec<Event> {
        let mut events = Vec::new();
        for number in 0..SHARD_NUMBERS {
            events.extend(self.inner().outbox(&first.sibling(number)).await);
        }
        events
    }

    async fn finish(&self, queue: &QueueName) {
        self.inner().finish(queue).await;
    }
}
