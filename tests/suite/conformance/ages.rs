//! How long messages have waited and leases have lasted (O1), and what lapsed in a call.

use tallystone_model::limits::{AGE_LEASES_MAX, AGE_PRIORITIES_MAX};
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_tests::queue::to;
use tallystone_tests::*;

over_each_store!(
    o1_the_oldest_message_counts_whatever_its_priority,
    o1_a_lease_is_as_old_as_its_begin_however_often_it_is_extended,
    o1_a_message_whose_value_is_taken_is_not_runnable,
    o1_beyond_the_bounds_the_ages_are_those_of_the_most_urgent,
    o1_a_call_says_what_lapsed_in_it,
);

async fn ages<S: Probe>(queue: &TestQueue<S>) -> (Option<u64>, Option<u64>) {
    let Ages { pending_ms, lease_ms } = queue.store.ages(&queue.shard).await.expect("a queue");
    (pending_ms, lease_ms)
}

async fn o1_the_oldest_message_counts_whatever_its_priority<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    assert_eq!(ages(&queue).await, (None, None));
    queue.put([NewMessage { invisibility_ms: Some(2_000), ..message("later", 5) }]).await;
    stage.clock.advance(100);
    queue.put([message("slow", 9)]).await;
    stage.clock.advance(1_000);
    queue.put([message("fast", 1), message("also", 9)]).await;
    stage.clock.advance(300);
    assert_eq!(ages(&queue).await, (Some(1_300), None));
    queue.take_one().await;
    assert_eq!(ages(&queue).await, (Some(1_300), Some(0)), "the most urgent one was not the oldest");
    queue.pass(700).await;
    assert_eq!(ages(&queue).await, (Some(2_100), Some(700)), "an invisibility counts");
    assert!(stage.store.ages(&Shard::first(&QueueName::parse("queue", "none").unwrap())).await.is_err());
}

async fn o1_a_lease_is_as_old_as_its_begin_however_often_it_is_extended<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    queue.put([message("a", 1), message("b", 2)]).await;
    let first = queue.take_one().await;
    stage.clock.advance(1_000);
    queue.take_one().await;
    stage.clock.advance(20_000);
    queue.extend(to(&first), None, "").await.expect("a live lease");
    assert_eq!(ages(&queue).await, (None, Some(21_000)), "the other lease ends first now");
    queue.complete(to(&first)).await.expect("a live lease");
    assert_eq!(ages(&queue).await, (None, Some(20_000)));
}

async fn o1_a_message_whose_value_is_taken_is_not_runnable<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    for (name, key) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")] {
        queue.put([keyed(name, 1, key)]).await;
        stage.clock.advance(1_000);
    }
    assert_eq!(ages(&queue).await, (Some(4_000), None));
    queue.take_one().await;
    assert_eq!(ages(&queue).await, (Some(2_000), Some(0)), "a2 waits for the lease");
    queue.take_one().await;
    assert_eq!(ages(&queue).await, (None, Some(0)));
}

async fn o1_beyond_the_bounds_the_ages_are_those_of_the_most_urgent<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    queue.put([message("oldest", 1_000)]).await;
    stage.clock.advance(5_000);
    queue.put((0..AGE_PRIORITIES_MAX as i64).map(|n| message(&format!("m{n}"), n))).await;
    assert_eq!(ages(&queue).await, (Some(0), None));
    queue.take_one().await;
    assert_eq!(ages(&queue).await, (Some(5_000), Some(0)), "its priority is within the bound now");

    let queue = stage.queue(simple()).await;
    queue.put((0..=AGE_LEASES_MAX as i64).map(|n| message(&format!("m{n}"), n))).await;
    queue.try_take(DequeueRequest { lease_ms: Some(60_000), ..request(1) }).await.expect("an open queue");
    stage.clock.advance(1_000);
    let leases = queue.take(AGE_LEASES_MAX).await;
    assert_eq!(ages(&queue).await, (None, Some(0)), "the oldest lease ends last");
    queue.complete(to(&leases[0])).await.expect("a live lease");
    assert_eq!(ages(&queue).await, (None, Some(1_000)));
}

async fn o1_a_call_says_what_lapsed_in_it<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    let last = |id: &str| NewMessage { max_attempts: Some(1), ..message(id, 1) };
    queue.put([last("a"), last("b"), message("c", 1)]).await;
    queue.take(3).await;
    stage.clock.advance(30_000);
    let dequeued = queue.dequeue(vec![request(9)]).await.expect("an open queue");
    assert_eq!((dequeued.expired, dequeued.errored), (3, 2));
    queue.put([last("d")]).await;
    queue.take(1).await;
    let swept = queue.pass(30_000).await;
    assert_eq!((swept.expired, swept.errored), (2, 1));
    let dequeued = queue.dequeue(vec![request(9)]).await.expect("an open queue");
    assert_eq!((dequeued.expired, dequeued.errored), (0, 0));
}
