//! Errored messages stay: for a separate retention, up to a number and a sum of payload bytes (Q22).

use super::bring;
use tallystone_model::limits::*;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_tests::queue::{missing, to};
use tallystone_tests::*;

over_each_store!(
    q22_errored_messages_outlive_the_others_with_their_payloads,
    q22_beyond_the_number_the_oldest_go,
    q22_beyond_the_bytes_the_oldest_go,
    q22_only_errored_messages_count,
    q22_a_smaller_bound_counts_for_what_is_there,
    q22_dropping_is_bounded_and_says_when_there_is_more,
);

/// A message of this many bytes that has no second attempt.
fn fragile(id: &str, bytes: usize) -> NewMessage {
    NewMessage { payload: vec![7; bytes].into(), max_attempts: Some(1), ..message(id, 1) }
}

/// Enqueues it and lets its only attempt fail.
async fn fail<S: Probe>(queue: &TestQueue<S>, message: NewMessage) {
    queue.put([message]).await;
    let lease = queue.take_one().await;
    queue.release(to(&lease), None, "broken").await.expect("a live lease");
    queue.clock.advance(1);
}

/// Sweeps once: how many messages were dropped, and the errored ones that are left.
async fn swept<S: Probe>(queue: &TestQueue<S>) -> (u64, Vec<String>) {
    let swept = queue.sweep().await;
    assert_eq!(swept.collected, swept.dropped);
    (swept.dropped, queue.list(State::Errored).await)
}

async fn q22_errored_messages_outlive_the_others_with_their_payloads<S: Probe>(stage: &Stage<S>) {
    const DAY_MS: u64 = 86_400_000;
    let queue = stage.queue(simple()).await;
    fail(&queue, fragile("failed", 9)).await;
    for state in [State::Completed, State::Canceled] {
        bring(&queue, message(state.name(), 1), state).await;
    }
    assert_eq!(queue.pass(30 * DAY_MS - 2).await.collected, 2, "the others are long over");
    let failed = queue.get("failed").await;
    assert_eq!((failed.state, failed.reason.as_str()), (State::Errored, "broken"));
    assert_eq!((failed.payload.len(), failed.due_ms), (9, stage.clock.now_ms() + 1));
    assert_eq!(queue.redrive("failed").await.map(|went| went.state), Ok(State::Pending));
    queue.release(to(&queue.take_one().await), None, "again").await.expect("a live lease");
    assert_eq!(queue.pass(30 * DAY_MS - 1).await.collected, 0, "from its last end");
    let swept = queue.pass(1).await;
    assert_eq!((swept.collected, swept.dropped, swept.next_ms), (1, 0, None));
    assert_eq!(queue.try_get("failed").await, missing("failed"));
}

async fn q22_beyond_the_number_the_oldest_go<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(QueueConfig { max_errored: 3, ..simple() }).await;
    for id in ["a", "b", "c"] {
        fail(&queue, fragile(id, 0)).await;
    }
    assert_eq!(swept(&queue).await, (0, vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]));
    fail(&queue, fragile("d", 0)).await;
    fail(&queue, fragile("e", 0)).await;
    assert_eq!(queue.list(State::Errored).await.len(), 5, "until the next sweep");
    assert_eq!(swept(&queue).await, (2, vec!["c".to_owned(), "d".to_owned(), "e".to_owned()]));
    let last = queue.events_of("a").await.pop().expect("events");
    assert_eq!((last.to, last.by, last.reason.as_str()), (None, Cause::Collect, TOO_MANY_ERRORED));
    assert_eq!(last.last_reason, "broken");
}

async fn q22_beyond_the_bytes_the_oldest_go<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(QueueConfig { max_errored_bytes: 1_000, ..simple() }).await;
    fail(&queue, fragile("a", 400)).await;
    fail(&queue, fragile("b", 600)).await;
    assert_eq!(swept(&queue).await.0, 0, "no more than the bound");
    fail(&queue, fragile("c", 1)).await;
    assert_eq!(swept(&queue).await, (1, vec!["b".to_owned(), "c".to_owned()]));
    fail(&queue, fragile("large", PAYLOAD_BYTES_MAX)).await;
    assert_eq!(swept(&queue).await, (3, vec![]), "one that is larger than the bound does not stay alone");
}

async fn q22_only_errored_messages_count<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(QueueConfig { max_errored: 1, max_errored_bytes: 100, ..simple() }).await;
    // Each way out of errored, then another message fails: there is room for it.
    for (turn, way) in ["redrive", "coalesce", "purge"].into_iter().enumerate() {
        fail(&queue, fragile(way, 90)).await;
        match way {
            "redrive" => drop(queue.redrive(way).await.expect("an errored message")),
            "coalesce" => drop(queue.put([NewMessage { coalesce: true, ..fragile(way, 90) }]).await),
            _ => drop(queue.purge(false).await),
        }
        if way != "purge" {
            queue.complete(to(&queue.take_one().await)).await.expect("a live lease");
        }
        let next = format!("next {turn}");
        fail(&queue, fragile(&next, 90)).await;
        assert_eq!(swept(&queue).await, (0, vec![next]), "{way}");
        queue.purge(false).await;
    }
}

async fn q22_a_smaller_bound_counts_for_what_is_there<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    for n in 0..4 {
        fail(&queue, fragile(&format!("m{n}"), 10)).await;
    }
    queue.reconfigure(QueuePatch { max_errored: Some(3), ..QueuePatch::default() }).await;
    assert_eq!(swept(&queue).await.0, 1);
    queue.reconfigure(QueuePatch { max_errored_bytes: Some(20), ..QueuePatch::default() }).await;
    assert_eq!(swept(&queue).await.0, 1);
    queue.reconfigure(QueuePatch { errored_retention_ms: Some(0), ..QueuePatch::default() }).await;
    let all = queue.sweep().await;
    assert_eq!((all.collected, all.dropped), (2, 0), "their retention is over");
}

async fn q22_dropping_is_bounded_and_says_when_there_is_more<S: Probe>(stage: &Stage<S>) {
    let some = SWEEP_ITEMS_MAX + 40;
    let queue = stage.queue(QueueConfig { max_errored: 1, lease_ms: 5_000, ..simple() }).await;
    queue.put((0..=some).map(|n| NewMessage { priority: n as i64, ..fragile(&format!("m{n:03}"), 1) })).await;
    let leases: Vec<LeaseRef> = queue.take(some + 1).await.iter().map(to).collect();
    for lease in leases {
        queue.release(lease, None, "").await.expect("a live lease");
    }
    let first = queue.sweep().await;
    assert_eq!((first.collected, first.dropped), (SWEEP_ITEMS_MAX as u64, SWEEP_ITEMS_MAX as u64));
    assert!(first.next_ms.is_some_and(|at_ms| at_ms <= first.now_ms), "there is more: {first:?}");
    let second = queue.sweep().await;
    assert_eq!((second.dropped, second.next_ms), (40, Some(stage.clock.now_ms() + 30 * 86_400_000)));
    assert_eq!(queue.list(State::Errored).await, [format!("m{some:03}")], "of one moment, by their order of arrival");
}
