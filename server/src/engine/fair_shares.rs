//! Fair shares of the store (S5), over the oracle and in virtual time.

use super::tests::{HOUR, Rig, id_of, queue, request};
use super::*;
use crate::testing::{TestStore, shard_of};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tallystone_model::store::LeaseRef;
use tallystone_model::{Applied, Filter, Metadata};

fn messages(count: usize) -> Vec<NewMessage> {
    (0..count).map(|n| NewMessage::new(id_of(&n.to_string()), 0)).collect()
}

impl Rig {
    /// Enqueues this number of messages in one call; returns the number of store calls.
    async fn calls_of(&self, name: &str, count: usize) -> u64 {
        let before = self.store.calls("enqueue");
        let results = self.engine.enqueue(&queue(name), messages(count), 0, true).await.unwrap();
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), count);
        self.store.calls("enqueue") - before
    }

    /// Completes a message that is not there; whether the queue is.
    async fn finds(&self, name: &str) -> bool {
        let lost = LeaseRef { id: id_of("m"), fencing_token: 1 };
        !matches!(self.engine.complete(&queue(name), vec![lost.into()], 0).await, Err(Refusal::QueueNotFound { .. }))
    }
}

#[tokio::test(start_paused = true)]
async fn s5_a_queue_that_another_server_creates_becomes_known() {
    let store = TestStore::new();
    let [first, second] = [&store, &store].map(Rig::new);
    let knows = |rig: &Rig, name: &str| rig.engine.context.fair_queue.knows(name);
    assert!(!first.finds("q").await && !knows(&first, "q"));
    second.enqueue("q", &["a"]).await;
    assert!(knows(&second, "q"), "it has created the queue");
    assert!(!knows(&first, "q"), "it has not called the store since");
    assert!(first.finds("q").await && knows(&first, "q"));
    store.oracle.purge(&shard_of("q"), true, "").await.unwrap();
    store.oracle.delete_queue(&queue("q")).await.unwrap();
    assert!(!first.finds("q").await && !knows(&first, "q"));
}

#[tokio::test(start_paused = true)]
async fn s5_the_bytes_of_messages_take_room_in_the_store() {
    let rig = Rig::with_queues(&["a", "b", "c"]).await;
    rig.store.gate.send_replace(false);
    let calls = ["a", "b", "c"].map(|name| {
        let engine = rig.engine.clone();
        tokio::spawn(
            async move { engine.enqueue(&queue(name), vec![NewMessage::new(id_of("m"), 0)], 2 << 20, true).await },
        )
    });
    rig.store.called("enqueue", 1).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(rig.store.calls("enqueue"), 1, "two MiB are more than two flushes");
    rig.store.gate.send_replace(true);
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn s5_a_large_flush_goes_in_steps_while_another_queue_has_small_ones() {
    let rig = Rig::with_queues(&["large", "small"]).await;
    assert_eq!(rig.calls_of("large", 100).await, 1);
    assert_eq!(rig.calls_of("small", 1).await, 1);
    // From now on both queues are known, each with its flow.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.calls_of("small", 1).await, 1);
    assert_eq!(rig.calls_of("large", 100).await, 4);
    assert_eq!(rig.calls_of("small", 100).await, 1, "its own small flushes and the large ones of others do not count");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.calls_of("large", 100).await, 1);
}

#[tokio::test(start_paused = true)]
async fn s5_a_large_flush_goes_in_steps_while_small_ones_are_slow_through_another_server() {
    let store = TestStore::new();
    let [first, second] = [&store, &store].map(Rig::new);
    first.calls_of("large", 1).await;
    second.calls_of("small", 1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    second.calls_of("small", 1).await;
    assert_eq!(first.calls_of("large", 100).await, 1, "small ones are fast");
    store.exit.send_replace(false);
    let (engine, enqueues) = (second.engine.clone(), store.calls("enqueue"));
    let slow = tokio::spawn(async move { engine.enqueue(&queue("small"), messages(1), 0, true).await });
    store.called("enqueue", enqueues + 1).await;
    tokio::time::sleep(Duration::from_millis(3)).await;
    store.exit.send_replace(true);
    slow.await.unwrap().unwrap();
    store.called("notify_light_flow", 1).await;
    assert_eq!(first.calls_of("large", 100).await, 4);
    assert_eq!(second.calls_of("large", 100).await, 4, "it has small ones of another queue itself");
    // Steps make the small ones fast, and continue.
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        second.calls_of("small", 1).await;
        assert_eq!(first.calls_of("large", 100).await, 4);
    }
    tokio::time::sleep(Duration::from_millis(250)).await;
    assert_eq!(first.calls_of("large", 100).await, 1, "no small ones come");
}

#[tokio::test(start_paused = true)]
async fn s5_a_step_that_the_store_does_not_answer_may_follow_one_that_it_has_executed() {
    let rig = Rig::with_queues(&["large", "small"]).await;
    rig.calls_of("large", 1).await;
    rig.calls_of("small", 1).await;
    *rig.store.away_after.lock().unwrap() = Some("enqueue");
    let answer = rig.engine.enqueue(&queue("large"), messages(100), 0, true).await;
    assert!(
        matches!(answer, Err(Refusal::Unavailable { applied: Applied::Unknown, .. })),
        "not {} results",
        answer.map_or(0, |results| results.len())
    );
    assert_eq!(rig.store.oracle.depth(&shard_of("large"), None).await.unwrap().pending, 25);
}

#[tokio::test(start_paused = true)]
async fn q18_a_waiter_gets_a_message_of_a_later_step() {
    let rig = Rig::with_queues(&["large", "small"]).await;
    let pair = || [("k".to_owned(), "v".to_owned())].into();
    let request = DequeueRequest { filters: vec![Filter::parse(pair()).unwrap()], ..request(1) };
    let engine = rig.engine.clone();
    let waiter = tokio::spawn(async move { engine.dequeue(&queue("large"), request, 0, Instant::now() + HOUR).await });
    rig.store.called("dequeue", 1).await;
    // The dequeue of the same flush is answered before its last step.
    rig.store.slow.store(true, Ordering::SeqCst);
    rig.calls_of("small", 1).await;
    let mut messages = messages(100);
    messages[99].metadata = Metadata::parse(pair()).unwrap();
    rig.engine.enqueue(&queue("large"), messages, 0, true).await.unwrap();
    let leases = tokio::time::timeout(Duration::from_secs(1), waiter).await.expect("in time").unwrap().unwrap();
    assert_eq!(leases[0].id, id_of("99"));
}
