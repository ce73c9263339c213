//! Every event arrives, in order, whatever happens to the sink and to relays.

use super::{RelayFixture, eventually, live};
use tallystone_tests::*;
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
