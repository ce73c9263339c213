//! What the outboxes of queues keep, and how they are read (Q15, Q19).

use super::{alone, raw};
use std::sync::Arc;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_server::store::{self, OutboxBound, OutboxFull, RedisOptions, RedisStore};
use tallystone_tests::queue::{lease_ref, to};
use tallystone_tests::*;

#[tokio::test]
async fn q15_the_outbox_is_kept_to_its_bound() {
    let stage = Stage::redis("bounded").await;
    let redis = stage.redis.clone().expect("a Redis");
    let queue = stage.queue(simple()).await;
    let bounded = async |full: OutboxFull| {
        let outbox = OutboxBound { events_max: 200, full, ..OutboxBound::default() };
        let options = RedisOptions { url: redis.url(), allow_volatile: true, outbox, ..RedisOptions::default() };
        queue.through(&Arc::new(RedisStore::connect(options).await.expect("a store")))
    };
    let refusing = bounded(OutboxFull::RefuseEnqueue).await;
    for n in 0..200 {
        refusing.put([message(&format!("m{n}"), n)]).await;
    }
    let full = Refusal::OutboxFull { queue: queue.name().to_string(), events_max: 200 };
    assert_eq!(refusing.try_put(message("m200", 1)).await, Err(full));
    assert!(refusing.try_put(message("m1", 1)).await.is_ok(), "it is there: nothing new is taken");
    assert_eq!(refusing.take_ids(1).await, ["m0"], "what is in the queue goes on");
    assert_eq!(queue.events().await.len(), 201);

    let giving_up = bounded(OutboxFull::GiveUpHistory).await;
    for n in 200..1_000 {
        giving_up.put([message(&format!("m{n}"), n)]).await;
    }
    let events = queue.events().await;
    assert_eq!(events.len(), 200);
    assert_eq!(events.last().map(|event| event.id.clone()), Some(id("m999")), "the oldest go");
    let purge = refusing.store.purge(&refusing.shard, true, "").await;
    assert!(matches!(purge, Err(Refusal::OutboxFull { .. })), "a purge waits for history: {purge:?}");
    for n in 0..1_000 {
        refusing.cancel_as(lease_ref(&format!("m{n}"), 0), true, "").await.expect("a live message");
    }
    assert_eq!(queue.events().await.len(), 400, "twice the bound for what is not an Enqueue");
    giving_up.purge(true).await;
    stage.store.delete_queue(queue.name()).await.expect("an empty queue");
}

#[tokio::test]
async fn q19_internal_queues_keep_no_history_unless_configured() {
    let (redis, clock) = (TestRedis::start().await, Clock::new());
    let store = async |internal_queues| {
        let outbox = OutboxBound { internal_queues, payload_bytes_kept: 10, ..OutboxBound::default() };
        let (url, clock) = (redis.url(), store::Clock::Test(clock.shared()));
        let options = RedisOptions { url, allow_volatile: true, outbox, clock, ..RedisOptions::default() };
        Arc::new(RedisStore::connect(options).await.expect("a store"))
    };
    let (without, with) = (store(false).await, store(true).await);
    for (name, kept, kept_if_configured) in [("rollup/ns/0of1", 0, 6), ("rollups", 6, 6), ("x/rollup/", 6, 6)] {
        for (store, kept) in [(&without, kept), (&with, kept_if_configured)] {
            let name = QueueName::parse("queue", name).expect("a name");
            store.create_queue(&name, exclusive()).await.expect("a new queue");
            let queue = TestQueue { store: store.clone(), clock: clock.clone(), shard: Shard::first(&name) };
            // A message of each kind of script: it comes, hides, is leased, released, leased, completed and collected.
            queue.put([NewMessage { invisibility_ms: Some(5), ..keyed("hides", 1, "k") }]).await;
            queue.pass(5).await;
            let lease = queue.take_one().await;
            queue.release(to(&lease), Some(0), "again").await.expect("a live lease");
            let lease = queue.take_one().await;
            queue.complete(to(&lease)).await.expect("a live lease");
            assert_eq!(queue.store.outbox_events(&queue.shard).await.expect("events").len(), kept, "{name}");
            assert_eq!(queue.depth().await.completed, 1);
            queue.pass(600_000).await;
            assert_eq!(queue.depth().await, Depth::default());
            store.delete_queue(&name).await.expect("an empty queue");
            raw::<()>(&redis, "FLUSHALL").await;
        }
    }
    // What is forgotten as it is completed has both events.
    let name = QueueName::parse("queue", "rollup/ns/0of1").expect("a name");
    with.create_queue(&name, QueueConfig { terminal_retention_ms: 0, ..exclusive() }).await.expect("a new queue");
    let queue = TestQueue { store: with, clock, shard: Shard::first(&name) };
    queue.put([keyed("m", 1, "k")]).await;
    let lease = queue.take_one().await;
    queue.complete(to(&lease)).await.expect("a live lease");
    let ends: Vec<_> = queue.events_of("m").await.iter().map(|event| (event.to, event.by, event.version)).collect();
    assert_eq!(ends[2..], [(Some(State::Completed), Cause::Complete, 3), (None, Cause::Collect, 4)]);
}

#[tokio::test]
async fn q19_the_lengths_of_a_thousand_outboxes_are_read_in_few_commands() {
    const QUEUES: u64 = 1_000;
    let (redis, stage) = alone("lengths").await;
    let mut shards = Vec::new();
    for n in 0..QUEUES {
        let queue = stage.queue(simple()).await;
        for m in 0..n % 3 {
            queue.put([tagged(&format!("m{m}"), 0, &[])]).await;
        }
        shards.push(queue.shard);
    }
    shards.push(Shard { queue: stage.queue_name(), number: 0 });
    let commands = async || {
        let stats: String = raw(&redis, "INFO stats").await;
        let calls = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
        calls.expect("a count").trim().parse::<u64>().expect("a number")
    };
    let before = commands().await;
    let lengths = stage.store.outbox_lengths(&shards.iter().collect::<Vec<_>>()).await.expect("lengths");
    assert!(commands().await - before < 10);
    let expected: Vec<Option<u64>> = (0..QUEUES).map(|n| Some(n % 3)).chain([None]).collect();
    assert_eq!(lengths, expected);
}
