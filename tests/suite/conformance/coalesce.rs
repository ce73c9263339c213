//! Coalescing: a live message stands for the new one: Q12.

use super::bring;
use bytes::Bytes;
use tallystone_model::*;
use tallystone_tests::queue::{lease_ref, lost, no_lease, went};
use tallystone_tests::*;

over_each_store!(
    q12_a_waiting_message_takes_the_more_urgent_priority,
    q12_what_is_not_more_urgent_writes_nothing,
    q12_the_first_content_stays,
    q12_a_running_message_runs_again_after_it_completes,
    q12_a_mark_gives_all_attempts_back,
    q12_a_mark_is_made_once,
    q12_a_marked_message_can_be_canceled,
    q12_a_terminal_message_makes_place_for_a_new_one,
    q12_a_terminal_message_stays_where_the_new_one_is_refused,
    q12_the_new_life_is_not_collected_by_the_old_ones_end,
    q12_a_live_message_of_another_key_is_a_conflict,
    q12_a_more_urgent_one_becomes_the_head_of_its_key,
    q12_a_new_message_and_its_stand_ins_in_one_batch,
);

fn coalescing(message: NewMessage) -> NewMessage {
    NewMessage { coalesce: true, ..message }
}

const WAITING: [State; 2] = [State::Invisible, State::Pending];

async fn q12_a_waiting_message_takes_the_more_urgent_priority<S: Probe>(stage: &Stage<S>) {
    for state in WAITING {
        for config in [simple(), exclusive()] {
            let queue = stage.queue(config).await;
            bring(&queue, keyed("m", 5, "k"), state).await;
            let before = queue.get("m").await;
            stage.clock.advance(10);
            let enqueued = queue.put([coalescing(keyed("m", 2, "k"))]).await.remove(0);
            assert_eq!(enqueued.enqueued_at_ms, before.enqueued_at_ms);
            assert_eq!(queue.get("m").await, Message { priority: 2, version: 2, ..before });
        }
    }
}

async fn q12_what_is_not_more_urgent_writes_nothing<S: Probe>(stage: &Stage<S>) {
    for state in WAITING {
        let queue = stage.queue(simple()).await;
        bring(&queue, message("m", 5), state).await;
        let before = queue.snapshot().await;
        for priority in [5, 6, i64::MAX] {
            queue.put([coalescing(message("m", priority))]).await;
        }
        assert_eq!(queue.snapshot().await, before);
    }
}

async fn q12_the_first_content_stays<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    let first = NewMessage { payload: Bytes::from_static(b"first"), ..tagged("m", 5, &[("k", "1")]) };
    queue.put([first.clone()]).await;
    let second = NewMessage { payload: Bytes::from_static(b"second"), ..tagged("m", 4, &[("k", "2")]) };
    queue.put([coalescing(NewMessage { lease_ms: Some(9_000), invisibility_ms: Some(9), ..second })]).await;
    let stands = queue.get("m").await;
    assert_eq!((&stands.payload, &stands.metadata, stands.priority), (&first.payload, &first.metadata, 4));
    assert_eq!((stands.lease_ms, stands.state), (None, State::Pending));
    assert_eq!(queue.depth_of(&filter(&[("k", "1")])).await.pending, 1);
}

async fn q12_a_running_message_runs_again_after_it_completes<S: Probe>(stage: &Stage<S>) {
    for config in [simple(), exclusive()] {
        let queue = stage.queue(config).await;
        let fencing_token = bring(&queue, keyed("m", 5, "k"), State::Running).await;
        queue.put([keyed("n", 4, "k"), coalescing(keyed("m", 3, "k"))]).await;
        let marked = queue.get("m").await;
        assert_eq!((marked.coalesced, marked.priority, marked.version), (true, 3, 3));
        assert_eq!(queue.complete(lease_ref("m", fencing_token)).await, went(State::Pending, 4));
        assert_eq!(queue.complete(lease_ref("m", fencing_token)).await, went(State::Pending, 4), "again");
        let waits = queue.get("m").await;
        assert_eq!((waits.coalesced, waits.attempts, waits.due_ms), (false, 0, 0));
        let again = queue.take_one().await;
        assert_eq!((again.id.as_str(), again.attempt), ("m", 1), "more urgent than n now");
        assert_eq!(queue.complete(lease_ref("m", again.fencing_token)).await, went(State::Completed, 6), "once only");
    }
}

async fn q12_a_mark_gives_all_attempts_back<S: Probe>(stage: &Stage<S>) {
    let backoff = Backoff { kind: BackoffKind::Fixed, base_ms: 50, max_ms: 50, jitter_percent: 0 };
    for (delay_ms, retry_backoff, state) in [
        (None, Backoff::default(), State::Pending),
        (None, backoff, State::Invisible),
        (Some(0), backoff, State::Pending),
        (Some(30), Backoff::default(), State::Invisible),
    ] {
        let config = QueueConfig { max_attempts: 1, retry_backoff, ..simple() };
        let queue = stage.queue(config.clone()).await;
        let fencing_token = bring(&queue, message("m", 5), State::Running).await;
        queue.put([coalescing(message("m", 5))]).await;
        assert_eq!(queue.release(lease_ref("m", fencing_token), delay_ms, "later").await, went(state, 4));
        let released = queue.get("m").await;
        assert_eq!((released.attempts, released.coalesced, released.reason.as_str()), (0, false, "later"));
        if delay_ms.is_none() {
            let queue = stage.queue(config).await;
            bring(&queue, message("m", 5), State::Running).await;
            queue.put([coalescing(message("m", 5))]).await;
            assert_eq!(queue.pass(30_000).await.expired, 1);
            let lapsed = queue.get("m").await;
            assert_eq!((lapsed.state, lapsed.attempts, lapsed.coalesced), (state, 0, false));
        }
    }
}

async fn q12_a_mark_is_made_once<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    bring(&queue, message("m", 5), State::Running).await;
    queue.put([coalescing(message("m", 5))]).await;
    let before = queue.snapshot().await;
    queue.put([coalescing(message("m", 5)), coalescing(message("m", 9))]).await;
    assert_eq!(queue.snapshot().await, before);
    queue.put([coalescing(message("m", 1))]).await;
    let more_urgent = queue.get("m").await;
    assert_eq!((more_urgent.priority, more_urgent.version, more_urgent.coalesced), (1, 4, true));
}

async fn q12_a_marked_message_can_be_canceled<S: Probe>(stage: &Stage<S>) {
    for force in [false, true] {
        let queue = stage.queue(exclusive()).await;
        let fencing_token = bring(&queue, keyed("m", 5, "k"), State::Running).await;
        queue.put([coalescing(keyed("m", 5, "k"))]).await;
        let lease = lease_ref("m", if force { 0 } else { fencing_token });
        assert_eq!(queue.cancel_as(lease, force, "enough").await, went(State::Canceled, 4));
        let canceled = queue.get("m").await;
        assert_eq!((canceled.coalesced, canceled.attempts), (false, 1));
        assert_eq!(queue.complete(lease_ref("m", fencing_token)).await, lost("m", State::Canceled));
    }
}

async fn q12_a_terminal_message_makes_place_for_a_new_one<S: Probe>(stage: &Stage<S>) {
    for state in [State::Completed, State::Canceled, State::Errored] {
        for config in [simple(), exclusive()] {
            let queue = stage.queue(config).await;
            let fencing_token = bring(&queue, keyed("m", 5, "k"), state).await;
            stage.clock.advance(10);
            // Another key is no conflict: nothing live stands in the way.
            let enqueued = queue.put([coalescing(keyed("m", 7, "other"))]).await.remove(0);
            assert_eq!(enqueued.enqueued_at_ms, stage.clock.now_ms());
            let fresh = queue.get("m").await;
            assert_eq!((fresh.state, fresh.version, fresh.priority, fresh.fencing_token), (State::Pending, 1, 7, 0));
            assert_eq!(
                queue.complete(lease_ref("m", fencing_token)).await,
                lost("m", State::Pending),
                "an older life's"
            );
            assert_eq!(queue.take_ids(2).await, ["m"]);
        }
    }
}

async fn q12_a_terminal_message_stays_where_the_new_one_is_refused<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(QueueConfig { max_depth: 1, ..simple() }).await;
    bring(&queue, message("m", 1), State::Completed).await;
    queue.put([message("live", 1)]).await;
    let before = queue.snapshot().await;
    let batch = vec![coalescing(message("m", 1)), coalescing(message("m", 2)), message("m", 1)];
    let results = queue.store.enqueue(&queue.shard, batch).await.expect("an open queue");
    let full = Refusal::QueueFull { queue: queue.name().to_string(), max_depth: 1 };
    assert_eq!(results[..2], [Err(full.clone()), Err(full)]);
    assert!(results[2].is_ok(), "the same content as that which completed");
    assert_eq!(queue.snapshot().await, before);
}

async fn q12_the_new_life_is_not_collected_by_the_old_ones_end<S: Probe>(stage: &Stage<S>) {
    for state in [State::Completed, State::Canceled, State::Errored] {
        let config = QueueConfig { terminal_retention_ms: 1_000, errored_retention_ms: 1_000, ..simple() };
        let queue = stage.queue(config).await;
        bring(&queue, message("m", 1), state).await;
        stage.clock.advance(400);
        bring(&queue, coalescing(message("m", 1)), state).await;
        assert_eq!(queue.list_by(state, 1).await.len(), 1, "listed once");
        assert_eq!(queue.pass(600).await.collected, 0, "the retention of the first life, {state}");
        assert_eq!(queue.state("m").await, state);
        assert_eq!(queue.pass(399).await.collected, 0);
        assert_eq!(queue.pass(1).await.collected, 1);
    }
}

async fn q12_a_live_message_of_another_key_is_a_conflict<S: Probe>(stage: &Stage<S>) {
    for state in [State::Invisible, State::Pending, State::Running] {
        let queue = stage.queue(exclusive()).await;
        bring(&queue, keyed("m", 5, "k"), state).await;
        let before = queue.snapshot().await;
        let other = queue.try_put(coalescing(keyed("m", 1, "other"))).await;
        assert_eq!(other, Err(Refusal::IdConflict { id: "m".to_owned() }));
        assert_eq!(queue.snapshot().await, before, "{state}");
    }
}

async fn q12_a_more_urgent_one_becomes_the_head_of_its_key<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    queue.put([keyed("a", 5, "k"), keyed("b", 6, "k"), keyed("c", 7, "k"), keyed("d", 1, "other")]).await;
    queue.put([coalescing(keyed("c", 0, "k"))]).await;
    assert_eq!(queue.list(State::Pending).await, ["c", "d", "a", "b"]);
    assert_eq!(queue.take_ids(1).await, ["c"]);
    // Behind a locked key it only changes its place.
    queue.put([coalescing(keyed("b", -5, "k"))]).await;
    assert_eq!(queue.take_ids(9).await, ["d"]);
    queue.cancel_as(no_lease("c"), true, "").await.expect("a running message");
    assert_eq!(queue.take_ids(9).await, ["b"]);
}

async fn q12_a_new_message_and_its_stand_ins_in_one_batch<S: Probe>(stage: &Stage<S>) {
    for config in [simple(), exclusive()] {
        let queue = stage.queue(config).await;
        let first = coalescing(keyed("m", 5, "k"));
        queue.put([first, keyed("n", 4, "k"), coalescing(keyed("m", 3, "k")), coalescing(keyed("n", 1, "k"))]).await;
        let seen = |message: Message| (message.version, message.priority);
        assert_eq!((seen(queue.get("m").await), seen(queue.get("n").await)), ((2, 3), (2, 1)));
        assert_eq!(queue.list(State::Pending).await, ["n", "m"]);
    }
}
