//! Several tries of one request with an id (Q10).

use super::{RETRY, World, ids, request};
use crate::sharded::Sharded;
use crate::testing::TestStore;
use std::sync::atomic::Ordering;
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
async fn q10_what_tries_have_got_in_different_shards_is_cut_to_the_limit() {
    let world = World::new(10).await;
    for number in [1, 2] {
        world.store.oracle.dequeue(&world.shard.sibling(number), &[named(3)], false, None).await.unwrap();
    }
    let first = try_through(&world, &world.queue, 0, 4).await.unwrap();
    let shards: Vec<u64> =
        first.leases.iter().flatten().flatten().map(|lease| fencing::shard_of(lease.fencing_token)).collect();
    let of_shard = |number: u64| shards.iter().filter(|shard| **shard == number).count();
    let cut = if of_shard(1) == 1 { 1 } else { 2 };
    assert_eq!((of_shard(cut), of_shard(3 - cut)), (1, 3), "what the first shard gave stays");
    let again = try_through(&world, &world.queue, 1, 4).await.unwrap();
    assert_eq!(ids(&again), ids(&first));
    // What one try has got is not cut, whatever the next one requests.
    let fewer = try_through(&world, &world.queue, 2, 1).await.unwrap();
    assert_eq!(ids(&fewer).len(), 3);
    assert_eq!(world.running().await, 6, "the worker of the other try may have the rest");
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
