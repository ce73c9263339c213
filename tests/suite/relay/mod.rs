//! The relay from the outboxes of a real Redis to a sink in memory: order, faults of the sink, two relays at once,
//! deleted queues, limits. `pipeline/` tests the way through Kafka to Elasticsearch.

mod delivery;
mod losses;
mod partitions;
mod payloads;
mod sink;

use sink::TestSink;
use std::sync::Arc;
use std::time::Duration;
use tallystone_model::*;
use tallystone_server::outbox::{OutboxHealth, Relay, RelayOptions};
use tallystone_server::store::{OutboxBound, RedisOptions, RedisStore};
use tallystone_tests::*;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A private Redis (a relay reads all outboxes), a store on it, and a sink.
struct RelayFixture {
    redis: TestRedis,
    store: Arc<RedisStore>,
    sink: Arc<TestSink>,
}

impl RelayFixture {
    async fn new() -> RelayFixture {
        RelayFixture::bounded(OutboxBound::default()).await
    }

    async fn bounded(outbox: OutboxBound) -> RelayFixture {
        RelayFixture::on(TestRedis::start().await, outbox).await
    }

    async fn on(redis: TestRedis, outbox: OutboxBound) -> RelayFixture {
        let options = RedisOptions::new(&volatile(&redis.url()), outbox).expect("no data folder");
        let store = Arc::new(RedisStore::connect(options).await.expect("a store"));
        RelayFixture { redis, store, sink: Arc::new(TestSink::default()) }
    }

    async fn queue(&self, name: &str) -> TestQueue<RedisStore> {
        let name = QueueName::parse("queue", name).expect("a name");
        self.store.create_queue(&name, simple()).await.expect("a queue");
        TestQueue { store: self.store.clone(), clock: Clock::new(), shard: Shard::first(&name) }
    }

    /// A relay on its own connection, as another server has it.
    async fn relay(&self) -> RunningRelay {
        let options = RedisOptions::new(&volatile(&self.redis.url()), OutboxBound::default()).expect("no data folder");
        let store = Arc::new(RedisStore::connect(options).await.expect("a store"));
        let options = RelayOptions { leader_lease_ms: 1_000, events_max: 1_000, watermark_every: Duration::ZERO };
        let health = OutboxHealth::default();
        let relay = Relay::new(store, self.sink.clone(), options, health.clone());
        let stop = CancellationToken::new();
        RunningRelay { task: tokio::spawn(relay.run(stop.clone())), stop, health }
    }

    /// Waits until the sink has all events of the queue and its outbox is empty.
    async fn settled(&self, queue: &TestQueue<RedisStore>) {
        eventually("the outbox is empty", async || queue.events().await.is_empty()).await;
    }
}

/// A relay in a task.
struct RunningRelay {
    task: JoinHandle<()>,
    stop: CancellationToken,
    health: OutboxHealth,
}

impl RunningRelay {
    async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("a clean end");
    }

    /// Ends as a killed process does: it releases nothing.
    fn die(self) {
        self.task.abort();
    }
}

/// Fails if a condition does not come true within half a minute.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Runs some messages through the queue, so that it writes events of different kinds.
async fn live(queue: &TestQueue<RedisStore>, messages: usize) {
    let names: Vec<String> = (0..messages).map(|n| format!("m{n}")).collect();
    queue.put(names.iter().map(|name| message(name, 1))).await;
    for lease in queue.take(messages / 2).await {
        let _ = queue.complete(queue::to(&lease)).await.expect("a live lease");
    }
    for lease in queue.take(messages).await {
        let _ = queue.release(queue::to(&lease), Some(0), "again").await.expect("a live lease");
    }
}
