//! The relay between the outboxes of a real Redis and a sink that the test looks into: order, faults of the sink, two
//! relays at once, deleted queues, bounds. The way through Kafka to Elasticsearch is the pipeline's (`pipeline/`).

mod sink;

use sink::TestSink;
use std::sync::Arc;
use std::time::Duration;
use tallystone_model::*;
use tallystone_server::outbox::{OutboxHealth, Relay, RelayOptions};
use tallystone_server::store::{OutboxBound, OutboxFull, RedisOptions, RedisStore};
use tallystone_tests::*;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A Redis of its own (a relay reads all outboxes), a store on it, and a sink.
struct World {
    redis: TestRedis,
    store: Arc<RedisStore>,
    sink: Arc<TestSink>,
}

impl World {
    async fn new() -> World {
        World::bounded(OutboxBound::default()).await
    }

    async fn bounded(outbox: OutboxBound) -> World {
        let redis = TestRedis::start().await;
        let options = RedisOptions { url: redis.url(), allow_volatile: true, outbox, ..RedisOptions::default() };
        let store = Arc::new(RedisStore::connect(options).await.expect("a store"));
        World { redis, store, sink: Arc::new(TestSink::default()) }
    }

    async fn queue(&self, name: &str) -> TestQueue<RedisStore> {
        let name = QueueName::parse("queue", name).expect("a name");
        self.store.create_queue(&name, simple()).await.expect("a queue");
        TestQueue { store: self.store.clone(), clock: Clock::new(), shard: Shard::first(&name) }
    }

    /// A relay on a connection of its own, as another server has one.
    async fn relay(&self) -> Running {
        let options = RedisOptions { url: self.redis.url(), allow_volatile: true, ..RedisOptions::default() };
        let store = Arc::new(RedisStore::connect(options).await.expect("a store"));
        let options = RelayOptions { leader_lease_ms: 1_000, events_max: 1_000, watermark_every: Duration::ZERO };
        let health = OutboxHealth::default();
        let relay = Relay::new(store, self.sink.clone(), options, health.clone());
        let stop = CancellationToken::new();
        Running { task: tokio::spawn(relay.run(stop.clone())), stop, health }
    }

    /// Waits until everything of the queue is in the sink and nothing in the outbox.
    async fn settled(&self, queue: &TestQueue<RedisStore>) {
        eventually("the outbox is empty", async || queue.events().await.is_empty()).await;
    }
}

/// A relay at work.
struct Running {
    task: JoinHandle<()>,
    stop: CancellationToken,
    health: OutboxHealth,
}

impl Running {
    async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("a relay that ends in order");
    }

    /// As a process that dies: nothing is given back.
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

/// Some lives: everything that leaves events of different shape.
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

#[tokio::test]
async fn q19_every_event_arrives_in_order_and_leaves_the_outbox() {
    let world = World::new().await;
    let queue = world.queue("before").await;
    live(&queue, 200).await;
    let expected = queue.events().await;
    let relay = world.relay().await;
    world.settled(&queue).await;
    assert_eq!(world.sink.of(&queue.shard), expected);
    // A queue made while the relay waits is found at once, not by its next walk.
    let later = world.queue("later").await;
    later.put([message("a", 1)]).await;
    eventually("the new queue's event", async || world.sink.of(&later.shard).len() == 1).await;
    let lag = world.sink.longest_lag_ms();
    assert!(lag < 5_000, "{lag} ms");
    relay.stop().await;
}

#[tokio::test]
async fn q19_offsets_have_no_gaps_also_over_the_deletion_of_a_queue() {
    let world = World::new().await;
    let relay = world.relay().await;
    for round in 0..3 {
        let queue = world.queue("again").await;
        live(&queue, 10).await;
        queue.purge(true).await;
        if round == 1 {
            world.settled(&queue).await;
        }
        world.store.delete_queue(queue.name()).await.expect("an empty queue");
    }
    let queue = world.queue("again").await;
    queue.put([message("last", 1)]).await;
    world.settled(&queue).await;
    let offsets = world.sink.offsets(&queue.shard);
    let breaks = offsets.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
    // Where the outbox was empty when the queue was deleted, numbers begin anew, higher.
    assert!(breaks <= 3 && offsets.is_sorted(), "{breaks} breaks in {offsets:?}");
    assert_eq!(world.sink.lost_versions(&queue.shard), Vec::<String>::new());
    relay.stop().await;
}

#[tokio::test]
async fn q19_what_is_lost_is_counted_and_nothing_else() {
    let world = World::new().await;
    let mut reader = world.store.outbox_reader();
    let mut read = async || {
        reader.discover().await.expect("shards");
        let read = reader.read(Duration::from_millis(1)).await.expect("a read");
        reader.ack(&read.shards).await.expect("an acknowledgement");
        (read.events.len(), reader.take_lost())
    };
    let queue = world.queue("q").await;
    queue.put([message("a", 1)]).await;
    assert_eq!(read().await, (1, 0));
    queue.purge(true).await;
    assert_eq!(read().await, (2, 0));
    // Deleted with an empty outbox, and made anew: its events begin at a higher number.
    world.store.delete_queue(queue.name()).await.expect("an empty queue");
    let queue = world.queue("q").await;
    queue.put([message("a", 1)]).await;
    assert_eq!(read().await, (1, 0));
    // Deleted with events that nobody has read, and made anew: they go on.
    queue.purge(true).await;
    world.store.delete_queue(queue.name()).await.expect("an empty queue");
    let queue = world.queue("q").await;
    queue.put([message("a", 1), message("b", 1)]).await;
    assert_eq!(read().await, (4, 0));
    // Given up.
    queue.take(1).await;
    queue.take(1).await;
    let mut redis = world.redis.connection().await;
    let outbox = format!("ts:{{{}}}:outbox", queue.shard.tag());
    let _: u64 = ::redis::cmd("XTRIM").arg(&outbox).arg("MAXLEN").arg(1).query_async(&mut redis).await.expect("a trim");
    assert_eq!(read().await, (1, 1));
    // What is deleted and read to its end leaves nothing behind.
    queue.purge(true).await;
    world.store.delete_queue(queue.name()).await.expect("an empty queue");
    read().await;
    read().await;
    let keys: Vec<String> = ::redis::cmd("KEYS").arg("*").query_async(&mut redis).await.expect("keys");
    assert!(!keys.contains(&outbox) && !keys.contains(&"ts:outboxes:left".to_owned()), "{keys:?}");
}

#[tokio::test]
async fn q19_a_sink_that_is_away_loses_nothing_and_the_queue_goes_on() {
    let world = World::new().await;
    let queue = world.queue("q").await;
    let relay = world.relay().await;
    queue.put([message("first", 1)]).await;
    world.settled(&queue).await;
    world.sink.fail(true);
    live(&queue, 100).await;
    eventually("a refused delivery", async || world.sink.refused() > 2).await;
    eventually("the health answer says so", async || !relay.health.is_good()).await;
    let expected = queue.events().await;
    assert!(!expected.is_empty(), "nothing leaves the outbox that no sink has");
    let before = world.sink.watermark();
    world.sink.fail(false);
    world.settled(&queue).await;
    assert_eq!(world.sink.of(&queue.shard)[1..], expected);
    eventually("the watermark goes on", async || world.sink.watermark() > before).await;
    eventually("the health answer is good again", async || relay.health.is_good()).await;
    relay.stop().await;
}

#[tokio::test]
async fn q19_a_sink_that_hangs_is_seen_and_the_leader_lease_is_kept() {
    let world = World::new().await;
    let queue = world.queue("q").await;
    let relay = world.relay().await;
    queue.put([message("first", 1)]).await;
    world.settled(&queue).await;
    world.sink.hang(true);
    // The bound that this relay is told of is 1,000 events: nine tenths of it wait.
    queue.put((0..900).map(|n| message(&format!("m{n}"), 1))).await;
    let second = world.relay().await;
    eventually("the health answer says so", async || !relay.health.is_good()).await;
    // As many renewals, one every third of a lease, as take longer than a lease lasts.
    let mut redis = world.redis.connection().await;
    let mut owners = std::collections::BTreeSet::new();
    let (mut renewals, mut left_ms) = (0, i64::MAX);
    eventually("the leader lease is renewed again and again", async || {
        let mut ask = ::redis::pipe();
        ask.cmd("GET").arg("ts:leader:relay").cmd("PTTL").arg("ts:leader:relay");
        let (owner, now_left_ms): (Option<String>, i64) = ask.query_async(&mut redis).await.expect("a leader lease");
        owners.insert(owner);
        renewals += usize::from(now_left_ms > left_ms);
        left_ms = now_left_ms;
        renewals > 4
    })
    .await;
    assert!(owners.len() == 1 && owners.iter().all(Option::is_some), "{owners:?}");
    world.sink.hang(false);
    world.settled(&queue).await;
    eventually("the health answer is good again", async || relay.health.is_good()).await;
    relay.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn q19_another_relay_takes_over_and_repeats_rather_than_omits() {
    let world = World::new().await;
    let queue = world.queue("q").await;
    let (one, two) = (world.relay().await, world.relay().await);
    let mut expected = 0;
    let mut relays = vec![one, two];
    for round in 0..6 {
        queue.put((0..50).map(|n| message(&format!("{round}-{n}"), 1))).await;
        expected += 50;
        // One of the two, at whatever it does just now; one of the times it is the one that is the leader.
        relays.remove(round % 2).die();
        relays.push(world.relay().await);
    }
    world.settled(&queue).await;
    let all = world.sink.of(&queue.shard);
    let mut ids: Vec<String> = all.iter().map(|event| event.id.to_string()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), expected);
    for relay in relays {
        relay.stop().await;
    }
}

#[tokio::test]
async fn q19_the_watermark_never_runs_ahead_of_the_events() {
    let world = World::new().await;
    let queue = world.queue("q").await;
    let relay = world.relay().await;
    for n in 0..200 {
        queue.put([message(&format!("m{n}"), 1)]).await;
    }
    world.settled(&queue).await;
    // The sink compares every event with the watermarks that came before it.
    assert_eq!(world.sink.late(), 0);
    let last = queue.get("m199").await.enqueued_at_ms;
    eventually("the watermark passes the last event", async || world.sink.watermark() >= last).await;
    relay.stop().await;
}

#[tokio::test]
async fn q19_history_that_was_given_up_does_not_stop_the_rest() {
    let outbox = OutboxBound { events_max: 200, full: OutboxFull::GiveUpHistory, ..OutboxBound::default() };
    let world = World::bounded(outbox).await;
    let queue = world.queue("q").await;
    for n in 0..500 {
        queue.put([message(&format!("m{n}"), 1)]).await;
    }
    let relay = world.relay().await;
    world.settled(&queue).await;
    let kept = world.sink.of(&queue.shard);
    assert_eq!(kept.len(), 200);
    assert_eq!(kept[0].id, id("m300"));
    relay.stop().await;
}

#[tokio::test]
async fn q19_payloads_travel_on_request_up_to_their_bound() {
    let world = World::bounded(OutboxBound { payload_bytes_kept: 4, ..OutboxBound::default() }).await;
    let queue = world.queue("q").await;
    let with = |name: &str, payload: &'static [u8], invisibility_ms| NewMessage {
        payload: bytes::Bytes::from_static(payload),
        invisibility_ms,
        ..message(name, 1)
    };
    queue
        .put([with("short", b"abc", None), with("long", b"abcdef", None), with("unseen", b"ghijkl", Some(9_000))])
        .await;
    queue.take(1).await;
    let payloads: Vec<Option<Vec<u8>>> =
        queue.events().await.into_iter().map(|event| event.payload.map(|payload| payload.to_vec())).collect();
    let some = |bytes: &[u8]| Some(bytes.to_vec());
    assert_eq!(payloads, [some(b"abc"), some(b"abcd"), some(b"ghij"), None]);
}
