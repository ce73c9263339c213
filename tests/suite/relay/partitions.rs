//! The relay of a store on a Redis Cluster: it reads all partitions, and its watermark is that of the last of them (Q17, Q19).

use super::sink::TestSink;
use super::{RelayFixture, RunningRelay, eventually, live};
use crate::crash::cluster::Cluster;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tallystone_link::RedisConfig;
use tallystone_lua::keys::Keyspace;
use tallystone_model::{QueueName, Shard, Store as _};
use tallystone_server::outbox::{OutboxHealth, Relay, RelayOptions};
use tallystone_server::store::{OutboxBound, RedisOptions, RedisStore};
use tallystone_tests::*;
use tokio_util::sync::CancellationToken;

const QUEUES: usize = 24;
/// Two of each primary.
const PARTITIONS: u16 = 6;
/// How often the queues whose partitions answer get messages while the others do not.
const ROUNDS: usize = 5;
/// Longer than a test takes.
const LEASE_MS: u64 = 600_000;

#[tokio::test]
async fn x3_q17_a_relay_reads_all_partitions_and_its_watermark_passes_no_event() {
    let fixture = RelayFixture::on(TestRedis::cluster().await, Default::default()).await;
    let partitions = volatile(&fixture.redis.url()).partition_count();
    let mut queues = Vec::new();
    for number in 0..QUEUES / 2 {
        queues.push(fixture.queue(&format!("before/{number}")).await);
    }
    let relay = fixture.relay().await;
    // The relay finds these while it waits.
    for number in 0..QUEUES / 2 {
        queues.push(fixture.queue(&format!("later/{number}")).await);
    }
    let used: BTreeSet<u16> = queues.iter().map(|queue| Keyspace::number_of(&queue.shard, partitions)).collect();
    assert_eq!(used.len(), usize::from(partitions), "every partition has a queue");
    for queue in &queues {
        live(queue, 40).await;
    }
    for queue in &queues {
        fixture.settled(queue).await;
        let offsets = fixture.sink.offsets(&queue.shard);
        assert!(offsets.is_sorted_by(|one, next| one + 1 == *next) && offsets.len() >= 80, "{offsets:?}");
    }
    let before = fixture.sink.watermark();
    eventually("the watermark advances without events", async || fixture.sink.watermark() > before).await;
    assert_eq!(fixture.sink.late(), 0, "no event came after a watermark that has passed it");
    // What a deleted queue has left is read, too.
    fixture.sink.fail(true);
    let queue = &queues[0];
    let done: Vec<_> = queue.take(100).await;
    for lease in &done {
        queue.complete(queue::to(lease)).await.expect("a live lease");
    }
    let expected = fixture.sink.of(&queue.shard).len() + queue.events().await.len();
    fixture.store.delete_queue(&queue.shard.queue).await.expect("an empty queue");
    fixture.sink.fail(false);
    eventually("the last events", async || fixture.sink.of(&queue.shard).len() > expected).await;
    let lengths =
        async || fixture.store.outbox_lengths(&queues.iter().map(|queue| &queue.shard).collect::<Vec<&Shard>>()).await;
    eventually("empty outboxes", async || {
        lengths().await.expect("lengths").iter().all(|length| length.unwrap_or(0) == 0)
    })
    .await;
    relay.stop().await;
}

#[tokio::test]
async fn x3_partitions_that_hang_hold_up_no_relay_of_others() {
    a_third_stands_still(1).await;
}

#[tokio::test]
async fn x3_without_the_partition_of_its_lease_the_relay_goes_on() {
    a_third_stands_still(0).await;
}

#[tokio::test]
async fn x3_without_the_partition_of_its_lease_a_relay_that_ends_has_a_successor() {
    let cluster = Cluster::start().await;
    let store = Arc::new(store_on(&cluster).await);
    let [first_sink, second_sink] = [(); 2].map(|()| Arc::new(TestSink::default()));
    let first = relay_on(&cluster, &first_sink).await;
    let queues = queues_on(&store).await;
    let (_, served) = away_and_served(&cluster, &queues, 0).await;
    let second = relay_on(&cluster, &second_sink).await;
    cluster.freeze_all(0);
    for queue in &served {
        live(queue, 10).await;
        settled(queue).await;
    }
    // As a process that is killed: it gives no lease back.
    first.task.abort();
    for queue in &served {
        let read_before = second_sink.of(&queue.shard).len();
        live(queue, 10).await;
        settled(queue).await;
        assert!(second_sink.of(&queue.shard).len() > read_before, "the second relay has read it");
    }
    cluster.thaw_all(0);
    for queue in &queues {
        eventually("it is served", async || queue.try_put(message("last", 1)).await.is_ok()).await;
        settled(queue).await;
    }
    second.stop().await;
}

#[tokio::test]
async fn x3_one_server_holds_a_lease_while_its_partition_does_not_answer() {
    let cluster = Cluster::start().await;
    let (store, other) = (store_on(&cluster).await, store_on(&cluster).await);
    let granted = async |store: &RedisStore, owner: &str| {
        store.acquire_leader_lease("job", owner, LEASE_MS).await.granted_by().expect("a partition answers")
    };
    assert_eq!((granted(&store, "a").await, granted(&other, "b").await), (Some(0), None));
    let gone = cluster.partitions(0, PARTITIONS).await;
    let first_there = (0..PARTITIONS).find(|number| !gone.contains(number)).expect("a partition");
    cluster.freeze_all(0);
    assert_eq!(granted(&other, "b").await, Some(first_there));
    assert_eq!((granted(&store, "a").await, granted(&other, "b").await), (None, Some(first_there)));
    other.release_leader_lease("job", "b").await.expect_err("the first partition does not answer");
    assert_eq!(granted(&store, "a").await, Some(first_there), "it was given back");
    cluster.thaw_all(0);
    eventually("the first partition decides again", async || granted(&store, "a").await == Some(0)).await;
    assert_eq!(granted(&other, "b").await, None);
}

/// The nodes of a third of the slots hang, and continue after the others have got their messages.
async fn a_third_stands_still(slots: usize) {
    let cluster = Cluster::start().await;
    let store = Arc::new(store_on(&cluster).await);
    let sink = Arc::new(TestSink::default());
    let relay = relay_on(&cluster, &sink).await;
    let queues = queues_on(&store).await;
    for queue in &queues {
        live(queue, 10).await;
    }
    for queue in &queues {
        settled(queue).await;
    }
    let (away, served) = away_and_served(&cluster, &queues, slots).await;
    // These are in the outboxes, or on their way, when the nodes stop.
    for queue in &away {
        live(queue, 10).await;
    }
    cluster.freeze_all(slots);
    for _ in 0..ROUNDS {
        for queue in &served {
            live(queue, 10).await;
        }
        for queue in &served {
            settled(queue).await;
        }
    }
    let frozen_at = sink.watermark();
    for queue in &served {
        live(queue, 10).await;
        settled(queue).await;
    }
    assert_eq!(sink.watermark(), frozen_at, "events of the others may be missing");
    cluster.thaw_all(slots);
    for queue in &away {
        eventually("it is served again", async || queue.try_put(message("last", 1)).await.is_ok()).await;
        settled(queue).await;
    }
    for queue in &queues {
        let offsets = sink.offsets(&queue.shard);
        assert!(offsets.is_sorted_by(|one, next| one + 1 == *next) && offsets.len() >= 20, "{offsets:?}");
    }
    eventually("the watermark advances again", async || sink.watermark() > frozen_at).await;
    assert_eq!(sink.late(), 0, "no event came after a watermark that has passed it");
    relay.stop().await;
}

async fn queues_on(store: &Arc<RedisStore>) -> Vec<TestQueue<RedisStore>> {
    let mut queues = Vec::new();
    for number in 0..QUEUES {
        let name = QueueName::parse("queue", &format!("q/{number}")).expect("a name");
        store.create_queue(&name, simple()).await.expect("a queue");
        queues.push(TestQueue { store: store.clone(), clock: Clock::new(), shard: Shard::first(&name) });
    }
    queues
}

type Queues<'a> = Vec<&'a TestQueue<RedisStore>>;

/// The queues whose partitions are in this third of the slots, and the others.
async fn away_and_served<'a>(
    cluster: &Cluster,
    queues: &'a [TestQueue<RedisStore>],
    slots: usize,
) -> (Queues<'a>, Queues<'a>) {
    let gone = cluster.partitions(slots, PARTITIONS).await;
    let (away, served): (Queues, Queues) =
        queues.iter().partition(|queue| gone.contains(&Keyspace::number_of(&queue.shard, PARTITIONS)));
    assert!(away.len() >= 3 && served.len() >= 6, "{} are away, {} are served", away.len(), served.len());
    (away, served)
}

async fn store_on(cluster: &Cluster) -> RedisStore {
    let redis = RedisConfig { url: cluster.url(), partitions: Some(PARTITIONS), ..RedisConfig::default() };
    let options = RedisOptions::new(&redis, OutboxBound::default()).expect("no data folder");
    RedisStore::connect(options).await.expect("a store")
}

/// A relay on its own connections, as another server has it.
async fn relay_on(cluster: &Cluster, sink: &Arc<TestSink>) -> RunningRelay {
    let options = RelayOptions { leader_lease_ms: 1_000, events_max: 1_000_000, watermark_every: Duration::ZERO };
    let health = OutboxHealth::default();
    let relay = Relay::new(Arc::new(store_on(cluster).await), sink.clone(), options, health.clone());
    let stop = CancellationToken::new();
    RunningRelay { task: tokio::spawn(relay.run(stop.clone())), stop, health }
}

async fn settled(queue: &TestQueue<RedisStore>) {
    eventually("the outbox is empty", async || queue.events().await.is_empty()).await;
}
