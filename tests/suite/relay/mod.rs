//! The relay from the outboxes of a real Redis to a sink in memory: order, faults of the sink, two relays at once,
//! deleted queues, limits. `pipeline/` tests the way through Kafka to Elasticsearch.

mod sink;

use sink::TestSink;
use std::sync::Arc;
use std::time::Duration;
use tallystone_indexer::api::HistoryApi;
use tallystone_indexer::{Embedded, EmbeddedOptions};
use tallystone_model::*;
use tallystone_proto::history::v1 as pb;
use tallystone_proto::history::v1::history_server::History;
use tallystone_server::outbox::{OutboxHealth, Relay, RelayOptions};
use tallystone_server::store::{OutboxBound, OutboxFull, RedisOptions, RedisStore};
use tallystone_tests::*;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::Request;

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
        let redis = TestRedis::start().await;
        let options = RedisOptions { url: redis.url(), allow_volatile: true, outbox, ..RedisOptions::default() };
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
        let options = RedisOptions { url: self.redis.url(), allow_volatile: true, ..RedisOptions::default() };
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

#[tokio::test]
async fn q19_every_event_arrives_in_order_and_leaves_the_outbox() {
    let fixture = RelayFixture::new().await;
    let queue = fixture.queue("before").await;
    live(&queue, 200).await;
    let expected = queue.events().await;
    let relay = fixture.relay().await;
    fixture.settled(&queue).await;
    assert_eq!(fixture.sink.of(&queue.shard), expected);
    // The relay finds a queue that is created while it waits at once, before its next discovery.
    let later = fixture.queue("later").await;
    later.put([message("a", 1)]).await;
    eventually("the new queue's event", async || fixture.sink.of(&later.shard).len() == 1).await;
    let lag = fixture.sink.longest_lag_ms();
    assert!(lag < 5_000, "{lag} ms");
    relay.stop().await;
}

#[tokio::test]
async fn q19_offsets_have_no_gaps_even_if_a_queue_is_deleted() {
    let fixture = RelayFixture::new().await;
    let relay = fixture.relay().await;
    for round in 0..3 {
        let queue = fixture.queue("again").await;
        live(&queue, 10).await;
        queue.purge(true).await;
        if round == 1 {
            fixture.settled(&queue).await;
        }
        fixture.store.delete_queue(queue.name()).await.expect("an empty queue");
    }
    let queue = fixture.queue("again").await;
    queue.put([message("last", 1)]).await;
    fixture.settled(&queue).await;
    let offsets = fixture.sink.offsets(&queue.shard);
    let breaks = offsets.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
    // If the outbox was empty when the queue was deleted, offsets restart at a higher number.
    assert!(breaks <= 3 && offsets.is_sorted(), "{breaks} breaks in {offsets:?}");
    assert_eq!(fixture.sink.lost_versions(&queue.shard), Vec::<String>::new());
    relay.stop().await;
}

#[tokio::test]
async fn q19_exactly_the_lost_events_are_counted() {
    let fixture = RelayFixture::new().await;
    let mut reader = fixture.store.outbox_reader();
    let mut read = async || {
        reader.discover().await.expect("shards");
        let read = reader.read(Duration::from_millis(1)).await.expect("a read");
        reader.ack(&read.shards).await.expect("an acknowledgement");
        (read.events.len(), reader.take_lost())
    };
    let queue = fixture.queue("q").await;
    queue.put([message("a", 1)]).await;
    assert_eq!(read().await, (1, 0));
    queue.purge(true).await;
    assert_eq!(read().await, (2, 0));
    // Deleted with an empty outbox and created again: its events start at a higher number.
    fixture.store.delete_queue(queue.name()).await.expect("an empty queue");
    let queue = fixture.queue("q").await;
    queue.put([message("a", 1)]).await;
    assert_eq!(read().await, (1, 0));
    // Deleted with unread events and created again: the numbers continue.
    queue.purge(true).await;
    fixture.store.delete_queue(queue.name()).await.expect("an empty queue");
    let queue = fixture.queue("q").await;
    queue.put([message("a", 1), message("b", 1)]).await;
    assert_eq!(read().await, (4, 0));
    // Events given up by a trim.
    queue.take(1).await;
    queue.take(1).await;
    let mut redis = fixture.redis.connection().await;
    let outbox = format!("ts:{{{}}}:outbox", queue.shard.tag());
    let _: u64 = ::redis::cmd("XTRIM").arg(&outbox).arg("MAXLEN").arg(1).query_async(&mut redis).await.expect("a trim");
    assert_eq!(read().await, (1, 1));
    // A deleted queue whose outbox is read leaves no keys.
    queue.purge(true).await;
    fixture.store.delete_queue(queue.name()).await.expect("an empty queue");
    read().await;
    read().await;
    let keys: Vec<String> = ::redis::cmd("KEYS").arg("*").query_async(&mut redis).await.expect("keys");
    assert!(!keys.contains(&outbox) && !keys.contains(&"ts:outboxes:left".to_owned()), "{keys:?}");
}

#[tokio::test]
async fn q19_a_failing_sink_loses_nothing_and_the_queue_continues() {
    let fixture = RelayFixture::new().await;
    let queue = fixture.queue("q").await;
    let relay = fixture.relay().await;
    queue.put([message("first", 1)]).await;
    fixture.settled(&queue).await;
    fixture.sink.fail(true);
    live(&queue, 100).await;
    eventually("a refused delivery", async || fixture.sink.refused() > 2).await;
    eventually("the health is bad", async || !relay.health.is_good()).await;
    let expected = queue.events().await;
    assert!(!expected.is_empty(), "undelivered events stay in the outbox");
    let before = fixture.sink.watermark();
    fixture.sink.fail(false);
    fixture.settled(&queue).await;
    assert_eq!(fixture.sink.of(&queue.shard)[1..], expected);
    eventually("the watermark advances", async || fixture.sink.watermark() > before).await;
    eventually("the health is good again", async || relay.health.is_good()).await;
    relay.stop().await;
}

#[tokio::test]
async fn q19_a_sink_that_hangs_is_seen_and_the_leader_lease_is_kept() {
    let fixture = RelayFixture::new().await;
    let queue = fixture.queue("q").await;
    let relay = fixture.relay().await;
    queue.put([message("first", 1)]).await;
    fixture.settled(&queue).await;
    fixture.sink.hang(true);
    // The limit of this relay is 1,000 events; nine tenths of it wait.
    queue.put((0..900).map(|n| message(&format!("m{n}"), 1))).await;
    let second = fixture.relay().await;
    eventually("the health is bad", async || !relay.health.is_good()).await;
    // As many renewals, one every third of a lease, as take longer than a lease lasts.
    let mut redis = fixture.redis.connection().await;
    let mut owners = std::collections::BTreeSet::new();
    let (mut renewals, mut left_ms) = (0, i64::MAX);
    eventually("the leader lease is renewed again and again", async || {
        let mut read = ::redis::pipe();
        read.cmd("GET").arg("ts:leader:relay").cmd("PTTL").arg("ts:leader:relay");
        let (owner, now_left_ms): (Option<String>, i64) = read.query_async(&mut redis).await.expect("a leader lease");
        owners.insert(owner);
        renewals += usize::from(now_left_ms > left_ms);
        left_ms = now_left_ms;
        renewals > 4
    })
    .await;
    assert!(owners.len() == 1 && owners.iter().all(Option::is_some), "{owners:?}");
    fixture.sink.hang(false);
    fixture.settled(&queue).await;
    eventually("the health is good again", async || relay.health.is_good()).await;
    relay.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn q19_another_relay_takes_over_without_losing_events() {
    let fixture = RelayFixture::new().await;
    let queue = fixture.queue("q").await;
    let (one, two) = (fixture.relay().await, fixture.relay().await);
    let mut expected = 0;
    let mut relays = vec![one, two];
    for round in 0..6 {
        queue.put((0..50).map(|n| message(&format!("{round}-{n}"), 1))).await;
        expected += 50;
        // One of the two, at whatever it does just now; one of the times it is the one that is the leader.
        relays.remove(round % 2).die();
        relays.push(fixture.relay().await);
    }
    fixture.settled(&queue).await;
    let all = fixture.sink.of(&queue.shard);
    let mut ids: Vec<String> = all.iter().map(|event| event.id.to_string()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), expected);
    for relay in relays {
        relay.stop().await;
    }
}

#[tokio::test]
async fn q19_the_watermark_is_never_ahead_of_the_events() {
    let fixture = RelayFixture::new().await;
    let queue = fixture.queue("q").await;
    let relay = fixture.relay().await;
    for n in 0..200 {
        queue.put([message(&format!("m{n}"), 1)]).await;
    }
    fixture.settled(&queue).await;
    // The sink compares every event with the watermarks before it.
    assert_eq!(fixture.sink.late(), 0);
    let last = queue.get("m199").await.enqueued_at_ms;
    eventually("the watermark passes the last event", async || fixture.sink.watermark() >= last).await;
    relay.stop().await;
}

#[tokio::test]
async fn q19_given_up_events_do_not_stop_the_others() {
    let outbox = OutboxBound { events_max: 200, full: OutboxFull::GiveUpHistory, ..OutboxBound::default() };
    let fixture = RelayFixture::bounded(outbox).await;
    let queue = fixture.queue("q").await;
    for n in 0..500 {
        queue.put([message(&format!("m{n}"), 1)]).await;
    }
    let relay = fixture.relay().await;
    fixture.settled(&queue).await;
    let kept = fixture.sink.of(&queue.shard);
    assert_eq!(kept.len(), 200);
    assert_eq!(kept[0].id, id("m300"));
    let loss = Loss { shard: queue.shard.clone(), lost_to_ms: kept[0].at_ms };
    assert_eq!(fixture.sink.losses(), [(0, loss)], "reported before the events that follow");
    relay.stop().await;
}

#[tokio::test]
async fn q19_a_loss_is_reported_until_the_sink_has_it_even_if_relays_die() {
    let outbox = OutboxBound { events_max: 200, full: OutboxFull::GiveUpHistory, ..OutboxBound::default() };
    let fixture = RelayFixture::bounded(outbox).await;
    let queue = fixture.queue("q").await;
    for n in 0..300 {
        queue.put([message(&format!("m{n}"), 1)]).await;
    }
    fixture.sink.fail(true);
    for round in 1..4 {
        let relay = fixture.relay().await;
        eventually("a refused loss", async || fixture.sink.refused() >= round * 2).await;
        relay.die();
    }
    assert_eq!((fixture.sink.losses(), fixture.sink.of(&queue.shard)), (vec![], vec![]), "nothing before the loss");
    fixture.sink.fail(false);
    let relay = fixture.relay().await;
    fixture.settled(&queue).await;
    let first = fixture.sink.of(&queue.shard)[0].clone();
    assert_eq!(first.id, id("m100"));
    let loss = Loss { shard: queue.shard.clone(), lost_to_ms: first.at_ms };
    let reported = fixture.sink.losses();
    // The loss of the last relay may come twice, not another one.
    assert!(!reported.is_empty() && reported.iter().all(|(_, other)| *other == loss), "{reported:?}");
    assert_eq!(reported[0].0, 0);
    // A jump of the numbers that is no loss: a queue was read to its end, deleted and created again.
    for _ in 0..2 {
        let queue = fixture.queue("p").await;
        queue.put([message("again", 1)]).await;
        queue.purge(true).await;
        fixture.settled(&queue).await;
        fixture.store.delete_queue(queue.name()).await.expect("an empty queue");
    }
    assert_eq!(fixture.sink.losses().len(), reported.len());
    relay.stop().await;
}

#[tokio::test]
async fn q19_payloads_are_kept_up_to_the_configured_size() {
    let fixture = RelayFixture::bounded(OutboxBound { payload_bytes_kept: 4, ..OutboxBound::default() }).await;
    let queue = fixture.queue("q").await;
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

#[tokio::test]
async fn q19_a_message_whose_end_was_given_up_is_uncertain() {
    let outbox = OutboxBound { events_max: 100, full: OutboxFull::GiveUpHistory, ..OutboxBound::default() };
    let fixture = RelayFixture::bounded(outbox).await;
    let folder = tempfile::TempDir::new().expect("a folder");
    let history = Embedded::open(EmbeddedOptions::new(folder.path().join("history.db"))).expect("a new history");
    let history = Arc::new(history);
    let relay = async || {
        let options = RelayOptions { leader_lease_ms: 1_000, events_max: 100, watermark_every: Duration::ZERO };
        let relay = Relay::new(fixture.store.clone(), history.clone(), options, OutboxHealth::default());
        let stop = CancellationToken::new();
        RunningRelay { task: tokio::spawn(relay.run(stop.clone())), stop, health: OutboxHealth::default() }
    };
    let (queue, other) = (fixture.queue("q").await, fixture.queue("other").await);
    queue.put((0..10).map(|n| message(&format!("m{n}"), 1))).await;
    other.put([message("m0", 1)]).await;
    let running = relay().await;
    fixture.settled(&queue).await;
    fixture.settled(&other).await;
    running.stop().await;
    // Without a relay: the end of the ten messages is given up, because later events fill the outbox.
    queue.purge(true).await;
    for n in 0..200 {
        queue.put([message(&format!("later{n}"), 1)]).await;
    }
    let running = relay().await;
    fixture.settled(&queue).await;
    running.stop().await;

    let api = HistoryApi::new(history.clone());
    let request = pb::SearchMessagesRequest { page_size: 1_000, ..Default::default() };
    let found = api.search_messages(Request::new(request)).await.expect("a response").into_inner().messages;
    let is_uncertain = |queue: &str, id: &str| {
        let mut found = found.iter().filter(|message| message.queue == queue && message.id == id);
        found.next().unwrap_or_else(|| panic!("{queue} {id}")).uncertain
    };
    for n in 0..10 {
        assert!(is_uncertain("q", &format!("m{n}")), "m{n} is pending in the index and not in the queue");
    }
    assert!(!is_uncertain("other", "m0") && !is_uncertain("q", "later199"));
    let request = pb::IndexedDepthRequest { queue: "q".to_owned(), ..Default::default() };
    let depth = api.indexed_depth(Request::new(request)).await.expect("a response").into_inner();
    let uncertain = depth.uncertain.expect("some are uncertain");
    assert!(uncertain.pending >= 10 && uncertain.pending < depth.counts.expect("counts").pending, "{depth:?}");
}

#[tokio::test]
async fn q22_the_payloads_of_errored_messages_are_kept_up_to_the_configured_size() {
    let bound = |payload_bytes_kept| OutboxBound {
        payload_bytes_kept,
        errored_payload_bytes_kept: 4,
        ..OutboxBound::default()
    };
    // The first event has as much already: the last one need not have it.
    for (payload_bytes_kept, first, last) in
        [(0, None, Some("brok")), (3, Some("bro"), Some("brok")), (4, Some("brok"), None)]
    {
        let fixture = RelayFixture::bounded(bound(payload_bytes_kept)).await;
        let queue = fixture.queue("q").await;
        let fragile = NewMessage { payload: "broken".into(), max_attempts: Some(1), ..message("m", 1) };
        queue.put([fragile]).await;
        queue.release(queue::to(&queue.take_one().await), None, "why").await.expect("a live lease");
        let payloads: Vec<Option<String>> = queue
            .events()
            .await
            .into_iter()
            .map(|event| event.payload.map(|payload| String::from_utf8_lossy(&payload).into_owned()))
            .collect();
        assert_eq!(payloads, [first.map(str::to_owned), None, last.map(str::to_owned)], "{payload_bytes_kept}");
    }
}
