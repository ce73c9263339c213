//! The stage of one test: a store, its clock, and the queues that the test creates.

use crate::clock::Clock;
use crate::probe::Probe;
use crate::queue::TestQueue;
use crate::redis::TestRedis;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tallystone_model::names::INTERNAL_QUEUES;
use tallystone_model::oracle::Oracle;
use tallystone_model::{QueueConfig, QueueName, Shard};
use tallystone_server::Sharded;
use tallystone_server::store::{self, RedisStore};

/// One test's store with two connections, as two servers have them.
pub struct Stage<S> {
    /// The store.
    pub store: Arc<S>,
    /// The same queues through another connection.
    pub other: Arc<S>,
    /// The clock of both.
    pub clock: Clock,
    /// The prefix of every queue name of this test.
    pub prefix: String,
    /// The Redis below the store, if it has one; it runs as long as the stage.
    pub redis: Option<Arc<TestRedis>>,
    /// How many shards its queues have, unless their configuration says more than 1.
    pub shards: u16,
    made: AtomicUsize,
    queues: Mutex<Vec<TestQueue<S>>>,
}

impl Stage<Oracle> {
    /// A stage on the oracle.
    pub fn oracle(test: &str) -> Self {
        let clock = Clock::new();
        let store = Arc::new(Oracle::new(clock.shared()));
        Stage::on(store.clone(), store, clock, test)
    }
}

impl Stage<RedisStore> {
    /// A stage on the Redis that the tests share.
    pub async fn redis(test: &str) -> Self {
        Stage::on_redis(test, TestRedis::shared().await).await
    }

    /// A stage on the Redis Cluster that the tests share.
    pub async fn cluster(test: &str) -> Self {
        Stage::on_redis(test, TestRedis::shared_cluster().await).await
    }

    /// A stage on a simulated Redis.
    pub async fn simulated(test: &str) -> Self {
        Stage::on_redis(test, Arc::new(TestRedis::simulated())).await
    }

    /// A stage on this Redis.
    pub async fn on_redis(test: &str, redis: Arc<TestRedis>) -> Self {
        let clock = Clock::new();
        let store = Arc::new(redis.store(store::Clock::Test(clock.shared())).await);
        let other = Arc::new(redis.store(store::Clock::Test(clock.shared())).await);
        Stage { redis: Some(redis), ..Stage::on(store, other, clock, test) }
    }
}

impl Stage<Sharded<Oracle>> {
    /// A stage on the oracle, whose queues have so many shards.
    pub fn oracle_of_shards(test: &str, shards: u16) -> Self {
        let clock = Clock::new();
        let oracle = Arc::new(Oracle::new(clock.shared()));
        let server = || Arc::new(Sharded::new(oracle.clone()));
        Stage { shards, ..Stage::on(server(), server(), clock, test) }
    }
}

impl Stage<Sharded<RedisStore>> {
    /// A stage on this Redis, whose queues have so many shards.
    pub async fn redis_of_shards(test: &str, redis: Arc<TestRedis>, shards: u16) -> Self {
        let Stage { store, other, clock, redis, .. } = Stage::on_redis(test, redis).await;
        let server = |store| Arc::new(Sharded::new(store));
        Stage { shards, redis, ..Stage::on(server(store), server(other), clock, test) }
    }
}

impl<S: Probe> Stage<S> {
    /// A stage on a store; `test` separates its queues from those of other tests.
    pub fn on(store: Arc<S>, other: Arc<S>, clock: Clock, test: &str) -> Self {
        let prefix = format!("{test}/");
        let (made, queues) = (AtomicUsize::new(0), Mutex::default());
        Stage { store, other, clock, prefix, redis: None, shards: 1, made, queues }
    }

    /// A name that no queue has yet.
    pub fn queue_name(&self) -> QueueName {
        let number = self.made.fetch_add(1, Ordering::SeqCst);
        QueueName::parse("queue", &format!("{}{number:03}", self.prefix)).expect("a valid queue name")
    }

    /// A new queue.
    pub async fn queue(&self, config: QueueConfig) -> TestQueue<S> {
        let queue = self.queue_of(self.queue_name(), config).await;
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).push(queue.clone());
        queue
    }

    /// A new queue that is internal. It has no events on Redis, so [`Stage::assert_sound`] leaves it out.
    pub async fn internal_queue(&self, config: QueueConfig) -> TestQueue<S> {
        let name = format!("{INTERNAL_QUEUES}{}", self.queue_name());
        self.queue_of(QueueName::parse("queue", &name).expect("a valid queue name"), config).await
    }

    async fn queue_of(&self, name: QueueName, config: QueueConfig) -> TestQueue<S> {
        let shards = if config.shards > 1 || name.is_internal() { config.shards } else { self.shards };
        self.store.create_queue(&name, QueueConfig { shards, ..config }).await.expect("a new queue");
        TestQueue { store: self.store.clone(), clock: self.clock.clone(), shard: Shard::first(&name) }
    }

    /// Checks the invariants of every queue that the test created and that still exists. Every conformance test ends
    /// with it.
    pub async fn assert_sound(&self) {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for queue in queues {
            queue.assert_sound().await;
        }
    }
}
