//! Several tries of one request with an id (Q10): they get one set of leases.

use super::{RETRY, SHARDS, World, ids, request};
use crate::sharded::Sharded;
use crate::testing::TestStore;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use tallystone_model::store::{DequeueRequest, Dequeued, Ticket};
use tallystone_model::{Applied, Refusal, Store, fencing};
use tokio::time::sleep;

fn named(limit: usize) -> DequeueRequest {
    DequeueRequest { request_id: "r".to_owned(), ..request(limit) }
}

/// A try through this server, in a slot of its lane.
async fn try_through(world: &World, server: &Sharded<TestStore>, slot: u8, limit: usize) -> Result<Dequeued, Refusal> {
    let number = 2 + u64::from(slot);
    let ticket = Ticket { server: 1, slot, first: number, number };
    server.dequeue(&world.shard, &[named(limit)], true, Some(ticket)).await
}

#[tokio::test(start_paused = true)]
async fn q10_two_tries_at_the_same_time_get_one_set_of_leases() {
    for is_other_server in [false, true] {
        let world = World::new(10).await;
        let other = Sharded::new(world.store.clone());
        // Without an id, the next Dequeue of this server begins with another shard than that of the first one.
        other.dequeue(&world.shard, &[request(1)], false, None).await.unwrap();
        let (calls, running) = (world.store.calls("dequeue"), world.running().await);
        let second = if is_other_server { &other } else { &world.queue };
        world.store.exit.send_replace(false);
        let both = async { futures::join!(try_through(&world, &world.queue, 0, 3), try_through(&world, second, 1, 3)) };
        let opened = async {
            // Each has found that no earlier try got leases in any shard.
            world.store.called("dequeue", calls + 2 * u64::from(SHARDS)).await;
            world.store.exit.send_replace(true);
        };
        let ((one, two), ()) = futures::join!(both, opened);
        let (one, two) = (ids(&one.unwrap()), ids(&two.unwrap()));
        assert_eq!((one.len(), &one), (3, &two), "through another server: {is_other_server}");
        assert_eq!(world.running().await, running + 3);
    }
}

#[tokio::test(start_paused = true)]
async fn q10_what_tries_have_got_in_different_shards_is_cut_to_the_limit() {
    let world = World::new(10).await;
    let notified: Arc<Mutex<BTreeSet<u64>>> = Arc::default();
    let sink = notified.clone();
    world.queue.on_ready(Box::new(move |shard| {
        sink.lock().unwrap().insert(u64::from(shard.number));
    }));
    for number in [1, 2] {
        world.store.oracle.dequeue(&world.shard.sibling(number), &[named(3)], false, None).await.unwrap();
    }
    assert_eq!(world.running().await, 6);
    let first = try_through(&world, &world.queue, 0, 4).await.unwrap();
    assert_eq!((ids(&first).len(), world.running().await), (4, 4), "the rest is released");
    let shards: Vec<u64> =
        first.leases.iter().flatten().flatten().map(|lease| fencing::shard_of(lease.fencing_token)).collect();
    let of_shard = |number: u64| shards.iter().filter(|shard| **shard == number).count();
    let cut = if of_shard(1) == 1 { 1 } else { 2 };
    assert_eq!((of_shard(cut), of_shard(3 - cut)), (1, 3), "what the first shard gave stays");
    assert_eq!(*notified.lock().unwrap(), [cut].into(), "other callers may wait for what is released");
    let again = try_through(&world, &world.queue, 1, 4).await.unwrap();
    assert_eq!((ids(&again), world.running().await), (ids(&first), 4));
    // What one try has got is not cut, whatever the next one requests.
    let fewer = try_through(&world, &world.queue, 2, 1).await.unwrap();
    assert_eq!((ids(&fewer).len(), world.running().await), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn q10_a_request_whose_reply_one_shard_has_lost_gets_no_leases_of_another() {
    let world = World::new(10).await;
    world.store.lose_leases.store(1, Ordering::SeqCst);
    let lost = try_through(&world, &world.queue, 0, 3).await.unwrap();
    assert!(matches!(lost.leases[0], Err(Refusal::Unavailable { applied: Applied::Unknown, .. })), "{lost:?}");
    assert_eq!(world.running().await, 3);
    sleep(RETRY).await;
    let again = try_through(&world, &world.queue, 1, 3).await.unwrap();
    assert_eq!((ids(&again).len(), world.running().await), (3, 3));
}
