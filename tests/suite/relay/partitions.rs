//! The relay of a store on a Redis Cluster: it reads all partitions, and its watermark is that of the last of them (Q17, Q19).

use super::{RelayFixture, eventually, live};
use std::collections::BTreeSet;
use tallystone_lua::keys::Keyspace;
use tallystone_model::{Shard, Store as _};
use tallystone_tests::*;

const QUEUES: usize = 24;

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
