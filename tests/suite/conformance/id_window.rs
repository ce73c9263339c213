//! How long an id is remembered after its message ended (Q26).

use super::bring;
use tallystone_model::*;
use tallystone_tests::queue::missing;
use tallystone_tests::*;

over_each_store!(
    q26_without_a_window_an_id_is_free_when_its_message_is_collected,
    q26_an_id_is_remembered_until_its_window_ends,
    q26_every_way_to_end_is_remembered_and_a_purge_is_not,
    q26_a_coalescing_message_takes_a_remembered_id,
    q26_a_window_shorter_than_the_retention_changes_nothing,
    q26_a_changed_window_counts_for_what_is_removed_later,
    q26_a_window_of_0_forgets_for_good,
    q26_the_deadline_of_a_class_is_not_part_of_the_content,
);

fn windowed(id_window_ms: u64) -> QueueConfig {
    QueueConfig { terminal_retention_ms: 1_000, errored_retention_ms: 1_000, id_window_ms, ..simple() }
}

fn conflict<T>(id: &str) -> Result<T, Refusal> {
    Err(Refusal::IdConflict { id: id.to_owned() })
}

async fn set_window<S: Probe>(queue: &TestQueue<S>, id_window_ms: u64) {
    queue.reconfigure(QueuePatch { id_window_ms: Some(id_window_ms), ..QueuePatch::default() }).await;
}

/// When the message that Enqueue answers was accepted, in ms from a time.
async fn put<S: Probe>(queue: &TestQueue<S>, message: NewMessage, from_ms: u64) -> Result<u64, Refusal> {
    queue.try_put(message).await.map(|enqueued| enqueued.enqueued_at_ms - from_ms)
}

async fn q26_without_a_window_an_id_is_free_when_its_message_is_collected<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(windowed(0)).await;
    let from_ms = stage.clock.now_ms();
    bring(&queue, message("m", 1), State::Completed).await;
    stage.clock.advance(999);
    assert_eq!(put(&queue, message("m", 2), from_ms).await, conflict("m"));
    queue.pass(1).await;
    assert_eq!(put(&queue, message("m", 2), from_ms).await, Ok(1_000));
}

async fn q26_an_id_is_remembered_until_its_window_ends<S: Probe>(stage: &Stage<S>) {
    for config in [windowed(5_000), QueueConfig { id_window_ms: 5_000, terminal_retention_ms: 1_000, ..exclusive() }] {
        let queue = stage.queue(QueueConfig { max_depth: 2, ..config }).await;
        let from_ms = stage.clock.now_ms();
        let sent = || tagged("m", 1, &[(KEY, "k"), ("org", "x")]);
        bring(&queue, sent(), State::Completed).await;
        assert_eq!(queue.pass(1_000).await.collected, 1);
        assert_eq!(queue.try_get("m").await, missing("m"), "the message itself is gone");
        queue.put(["n1", "n2"].map(|name| keyed(name, 1, name))).await;
        let before = queue.snapshot().await;
        stage.clock.advance(3_999);
        assert_eq!(put(&queue, sent(), from_ms).await, Ok(0), "a duplicate needs no room");
        assert_eq!(put(&queue.through(&stage.other), sent(), from_ms).await, Ok(0));
        for other in [
            tagged("m", 2, &[(KEY, "k"), ("org", "x")]),
            tagged("m", 1, &[(KEY, "k"), ("org", "y")]),
            NewMessage { payload: "p".into(), ..sent() },
            NewMessage { lease_ms: Some(1_500), ..sent() },
        ] {
            assert_eq!(put(&queue, other, from_ms).await, conflict("m"));
        }
        assert_eq!(queue.snapshot().await, before);
        // No sweep has deleted the record yet.
        stage.clock.advance(1);
        queue.cancel(tallystone_tests::queue::no_lease("n1"), "").await.expect("a pending message");
        assert_eq!(put(&queue, keyed("m", 9, "k"), from_ms).await, Ok(5_000), "the window is over");
        assert_eq!(queue.get("m").await.version, 1);
    }
}

async fn q26_every_way_to_end_is_remembered_and_a_purge_is_not<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(QueueConfig { max_errored: 1, ..windowed(5_000) }).await;
    let from_ms = stage.clock.now_ms();
    for name in ["dropped", "errored"] {
        bring(&queue, message(name, 1), State::Errored).await;
        stage.clock.advance(1);
    }
    bring(&queue, message("canceled", 1), State::Canceled).await;
    assert_eq!(queue.sweep().await.dropped, 1);
    assert_eq!(put(&queue, message("dropped", 2), from_ms).await, conflict("dropped"));
    queue.pass(1_000).await;
    for name in ["dropped", "errored", "canceled"] {
        assert_eq!(queue.try_get(name).await, missing(name));
        assert_eq!(put(&queue, message(name, 2), from_ms).await, conflict(name));
    }
    bring(&queue, message("purged", 1), State::Canceled).await;
    queue.purge(false).await;
    assert_eq!(put(&queue, message("purged", 2), from_ms).await, Ok(1_002));
    assert_eq!(put(&queue, message("canceled", 2), from_ms).await, conflict("canceled"), "collected before");
}

async fn q26_a_coalescing_message_takes_a_remembered_id<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(QueueConfig { max_depth: 1, ..windowed(60_000) }).await;
    let from_ms = stage.clock.now_ms();
    bring(&queue, message("m", 1), State::Canceled).await;
    queue.pass(1_000).await;
    let again = || NewMessage { coalesce: true, ..message("m", 7) };
    queue.put([message("n", 1)]).await;
    let full = Refusal::QueueFull { queue: queue.name().to_string(), max_depth: 1 };
    assert_eq!(put(&queue, again(), from_ms).await, Err(full));
    assert_eq!(put(&queue, message("m", 1), from_ms).await, Ok(0), "it is remembered still");
    queue.cancel(tallystone_tests::queue::no_lease("n"), "").await.expect("a pending message");
    // The later items of a call see the message that the first one made.
    let results = queue.store.enqueue(&queue.shard, vec![again(), again(), message("m", 7), message("m", 1)]).await;
    let results: Vec<_> =
        results.expect("an open queue").into_iter().map(|r| r.map(|e| e.enqueued_at_ms - from_ms)).collect();
    assert_eq!(results, [Ok(1_000), Ok(1_000), Ok(1_000), conflict("m")]);
    assert_eq!(queue.get("m").await.priority, 7);
    // Nothing is left of the first message.
    queue.purge(true).await;
    assert_eq!(put(&queue, message("m", 3), from_ms).await, Ok(1_000));
}

async fn q26_a_window_shorter_than_the_retention_changes_nothing<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(windowed(500)).await;
    bring(&queue, message("m", 1), State::Completed).await;
    stage.clock.advance(999);
    assert_eq!(put(&queue, message("m", 2), 0).await, conflict("m"), "as long as the message is kept");
    queue.pass(1).await;
    assert_eq!(put(&queue, message("m", 2), stage.clock.now_ms()).await, Ok(0));
}

async fn q26_a_changed_window_counts_for_what_is_removed_later<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(windowed(5_000)).await;
    bring(&queue, message("a", 1), State::Completed).await;
    queue.pass(1_000).await;
    set_window(&queue, 2_000).await;
    bring(&queue, message("b", 1), State::Completed).await;
    queue.pass(1_000).await;
    queue.pass(1_000).await;
    assert_eq!(put(&queue, message("a", 2), 0).await, conflict("a"));
    assert_eq!(put(&queue, message("b", 2), stage.clock.now_ms()).await, Ok(0));
    // A longer window does not prolong what is remembered already.
    set_window(&queue, 60_000).await;
    queue.pass(2_000).await;
    assert_eq!(put(&queue, message("a", 2), stage.clock.now_ms()).await, Ok(0));
}

async fn q26_a_window_of_0_forgets_for_good<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(windowed(60_000)).await;
    for name in ["a", "b", "c"] {
        bring(&queue, message(name, 1), State::Completed).await;
    }
    queue.pass(1_000).await;
    bring(&queue, message("kept", 1), State::Completed).await;
    set_window(&queue, 0).await;
    assert_eq!(put(&queue.through(&stage.other), message("a", 2), stage.clock.now_ms()).await, Ok(0));
    assert_eq!(put(&queue, message("kept", 2), 0).await, conflict("kept"), "its message is there");
    // No sweep came in between; the window of another server's view does not matter either.
    set_window(&queue.through(&stage.other), 60_000).await;
    assert_eq!(put(&queue, message("b", 2), stage.clock.now_ms()).await, Ok(0));
    // It never ceased to be known, and is collected under the new window.
    queue.pass(1_000).await;
    assert_eq!(put(&queue, message("kept", 2), 0).await, conflict("kept"));
    assert_eq!(put(&queue, message("c", 2), stage.clock.now_ms()).await, Ok(0));
    assert_eq!(put(&queue, message("a", 1), 0).await, conflict("a"), "the new one lives");
}

async fn q26_the_deadline_of_a_class_is_not_part_of_the_content<S: Probe>(stage: &Stage<S>) {
    let offsets_ms = [("urgent".to_owned(), -1_000), ("bulk".to_owned(), 1_000)].into();
    let priority_classes = PriorityClasses { offsets_ms, ..PriorityClasses::default() };
    let queue = stage.queue(QueueConfig { priority_classes, ..windowed(5_000) }).await;
    let of = |class: &str| NewMessage { priority_class: Some(class.to_owned()), ..message("m", 0) };
    let from_ms = stage.clock.now_ms();
    bring(&queue, of("urgent"), State::Completed).await;
    queue.pass(1_000).await;
    assert_eq!(queue.try_get("m").await, missing("m"));
    assert_eq!(put(&queue, of("urgent"), from_ms).await, Ok(0));
    assert_eq!(put(&queue, of("bulk"), from_ms).await, conflict("m"));
    assert_eq!(put(&queue, message("m", from_ms as i64 - 1_000), from_ms).await, conflict("m"));
}
