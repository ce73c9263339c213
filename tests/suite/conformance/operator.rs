//! What operators do: Redrive, UpdateMessage, Purge: Q5, Q7.

use super::bring;
use tallystone_model::limits::SWEEP_ITEMS_MAX;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_tests::queue::{lease_ref, missing, no_lease, to, went, wrong};
use tallystone_tests::*;

over_each_store!(
    q5_redrive_makes_an_ended_message_run_again,
    q10_a_repeated_redrive_answers_the_same_until_it_runs,
    q5_redrive_refuses_what_needs_none,
    q7_update_changes_priority_and_visibility_in_one_write,
    q7_an_update_that_changes_nothing_writes_nothing,
    q7_a_running_message_takes_a_priority_for_its_next_run,
    q7_update_refuses_ended_messages,
    q7_purge_takes_every_state_but_running,
    q7_purge_takes_running_messages_only_on_request,
    q7_what_comes_after_a_purge_began_survives_it,
    q7_purge_frees_every_value_it_took,
);

async fn q5_redrive_makes_an_ended_message_run_again<S: Probe>(stage: &Stage<S>) {
    for state in [State::Canceled, State::Errored] {
        let queue = stage.queue(exclusive()).await;
        bring(&queue, keyed("m", 5, "k"), state).await;
        let ended = queue.get("m").await;
        queue.put([keyed("n", 6, "k"), keyed("first", 4, "k")]).await;
        stage.clock.advance(10);
        assert_eq!(queue.redrive("m").await, went(State::Pending, ended.version + 1));
        let redriven = queue.get("m").await;
        let state_since_ms = stage.clock.now_ms();
        let expected = Message {
            state: State::Pending,
            version: ended.version + 1,
            attempts: 0,
            due_ms: 0,
            state_since_ms,
            ..ended
        };
        assert_eq!(redriven, expected, "reason and last holder stay");
        assert_eq!(queue.list(State::Pending).await, ["first", "m", "n"], "it has kept its place");
        queue.cancel(no_lease("first"), "").await.expect("a pending message");
        let lease = queue.take_one().await;
        assert_eq!((lease.id.as_str(), lease.attempt), ("m", 1));
    }
}

async fn q10_a_repeated_redrive_answers_the_same_until_it_runs<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    bring(&queue, message("m", 5), State::Canceled).await;
    let first = queue.redrive("m").await;
    let before = queue.snapshot().await;
    assert_eq!(queue.redrive("m").await, first);
    assert_eq!(queue.snapshot().await, before);
    let ids = vec![id("m"), id("none"), id("m")];
    assert_eq!(queue.store.redrive(&queue.shard, ids).await, Ok(vec![first.clone(), missing("none"), first]));
    let lease = queue.take_one().await;
    assert_eq!(queue.redrive("m").await, wrong("m", State::Running));
    queue.release(to(&lease), Some(0), "").await.expect("a live lease");
    assert_eq!(queue.redrive("m").await, wrong("m", State::Pending), "it has run since");
}

async fn q5_redrive_refuses_what_needs_none<S: Probe>(stage: &Stage<S>) {
    for state in [State::Invisible, State::Pending, State::Running, State::Completed] {
        let queue = stage.queue(simple()).await;
        bring(&queue, message("m", 5), state).await;
        let before = queue.snapshot().await;
        assert_eq!(queue.redrive("m").await, wrong("m", state));
        assert_eq!(queue.snapshot().await, before);
    }
}

async fn q7_update_changes_priority_and_visibility_in_one_write<S: Probe>(stage: &Stage<S>) {
    for config in [simple(), exclusive()] {
        for state in [State::Invisible, State::Pending] {
            let queue = stage.queue(config.clone()).await;
            bring(&queue, keyed("m", 5, "k"), state).await;
            queue.put([keyed("n", 4, "k")]).await;
            let at_ms = stage.clock.now_ms() + 700;
            let patch = MessagePatch { priority: Some(i64::MIN), visible_at_ms: Some(at_ms) };
            assert_eq!(queue.update("m", patch).await, went(State::Invisible, 2));
            let updated = queue.get("m").await;
            assert_eq!((updated.priority, updated.due_ms, updated.version), (i64::MIN, at_ms, 2));
            let now = MessagePatch { priority: Some(3), visible_at_ms: Some(stage.clock.now_ms()) };
            assert_eq!(queue.update("m", now).await, went(State::Pending, 3));
            assert_eq!(queue.take_ids(1).await, ["m"]);
            assert_eq!(queue.show_at("n", 0).await, went(State::Pending, 1), "it was visible");
            queue.cancel_as(no_lease("m"), true, "").await.expect("a running message");
            queue.reprioritize("n", i64::MAX).await.expect("a pending message");
            assert_eq!(queue.take_one().await.priority, i64::MAX);
        }
    }
}

async fn q7_an_update_that_changes_nothing_writes_nothing<S: Probe>(stage: &Stage<S>) {
    for state in [State::Invisible, State::Pending, State::Running] {
        let queue = stage.queue(simple()).await;
        bring(&queue, message("m", 5), state).await;
        let before = queue.snapshot().await;
        let stands = queue.get("m").await;
        let mut patches = vec![MessagePatch::default(), MessagePatch { priority: Some(5), visible_at_ms: None }];
        match state {
            State::Invisible => patches.push(MessagePatch { priority: None, visible_at_ms: Some(stands.due_ms) }),
            State::Pending => patches.push(MessagePatch { priority: Some(5), visible_at_ms: Some(0) }),
            _ => {}
        }
        for patch in patches {
            assert_eq!(queue.update("m", patch).await, went(state, stands.version));
        }
        assert_eq!(queue.snapshot().await, before);
    }
}

async fn q7_a_running_message_takes_a_priority_for_its_next_run<S: Probe>(stage: &Stage<S>) {
    for config in [simple(), exclusive()] {
        let queue = stage.queue(config).await;
        let fencing_token = bring(&queue, keyed("m", 5, "k"), State::Running).await;
        queue.put([keyed("n", 4, "k")]).await;
        for visible_at_ms in [0, stage.clock.now_ms() + 9] {
            let patch = MessagePatch { priority: Some(1), visible_at_ms: Some(visible_at_ms) };
            assert_eq!(queue.update("m", patch).await, wrong("m", State::Running));
        }
        assert_eq!(queue.reprioritize("m", 3).await, went(State::Running, 3));
        queue.release(lease_ref("m", fencing_token), Some(0), "").await.expect("a live lease");
        let lease = queue.take_one().await;
        assert_eq!((lease.id.as_str(), lease.priority), ("m", 3));
    }
}

async fn q7_update_refuses_ended_messages<S: Probe>(stage: &Stage<S>) {
    for state in [State::Completed, State::Canceled, State::Errored] {
        let queue = stage.queue(simple()).await;
        bring(&queue, message("m", 5), state).await;
        let before = queue.snapshot().await;
        assert_eq!(queue.reprioritize("m", 1).await, wrong("m", state));
        assert_eq!(queue.show_at("m", 0).await, wrong("m", state));
        assert_eq!(queue.update("m", MessagePatch::default()).await, wrong("m", state));
        assert_eq!(queue.snapshot().await, before);
        assert_eq!(queue.reprioritize("none", 1).await, missing("none"));
    }
}

/// A message of each state, named after it, each with another key.
async fn one_of_each<S: Probe>(queue: &TestQueue<S>) {
    for (at, state) in State::ALL.into_iter().enumerate() {
        bring(queue, keyed(state.name(), -(at as i64), state.name()), state).await;
    }
}

async fn q7_purge_takes_every_state_but_running<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    one_of_each(&queue).await;
    assert_eq!(queue.purge(false).await, 5);
    assert_eq!(queue.depth().await, Depth { running: 1, ..Depth::default() });
    assert_eq!(queue.try_get("pending").await, missing("pending"));
    let last = queue.events_of("pending").await;
    let by: Vec<_> = last.iter().map(|event| (event.from, event.to, event.by)).collect();
    assert_eq!(
        by[1..],
        [(Some(State::Pending), Some(State::Canceled), Cause::Purge), (Some(State::Canceled), None, Cause::Collect)]
    );
    let fencing_token = queue.get("running").await.fencing_token;
    assert_eq!(queue.complete(lease_ref("running", fencing_token)).await, went(State::Completed, 3));
    assert_eq!((queue.purge(false).await, queue.purge(false).await), (1, 0));
    assert_eq!(queue.pass(600_000).await.collected, 0);
}

async fn q7_purge_takes_running_messages_only_on_request<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    one_of_each(&queue).await;
    queue.put([NewMessage { coalesce: true, ..keyed("running", 1, "running") }]).await;
    let fencing_token = queue.get("running").await.fencing_token;
    assert_eq!(queue.purge(true).await, 6);
    assert_eq!(queue.depth().await, Depth::default());
    assert_eq!(queue.complete(lease_ref("running", fencing_token)).await, missing("running"));
    let causes: Vec<Cause> = queue.events_of("running").await.iter().map(|event| event.by).collect();
    assert_eq!(causes, [Cause::Enqueue, Cause::Dequeue, Cause::Coalesce, Cause::Purge, Cause::Collect]);
    assert!(stage.store.delete_queue(queue.name()).await.is_ok(), "nothing live is left");
}

async fn q7_what_comes_after_a_purge_began_survives_it<S: Probe>(stage: &Stage<S>) {
    let some = 4 * SWEEP_ITEMS_MAX;
    for config in [simple(), exclusive()] {
        let queue = stage.queue(config).await;
        for part in 0..2 {
            queue.put((0..some / 2).map(|n| keyed(&format!("old {part} {n}"), 1, &format!("k{}", n % 9)))).await;
        }
        let first = queue.store.purge(&queue.shard, false, "").await.expect("a step");
        assert!(first.purged > 0 && !first.next_cursor.is_empty(), "it takes more than one step: {first:?}");
        queue.put((0..50).map(|n| keyed(&format!("new {n}"), 0, &format!("k{}", n % 9)))).await;
        let (mut purged, mut cursor) = (first.purged, first.next_cursor);
        while !cursor.is_empty() {
            let step = queue.store.purge(&queue.shard, false, &cursor).await.expect("a step");
            assert!(step.purged <= SWEEP_ITEMS_MAX as u64, "bounded");
            (purged, cursor) = (purged + step.purged, step.next_cursor);
        }
        assert_eq!(purged, some as u64);
        assert_eq!(queue.depth().await, Depth { pending: 50, ..Depth::default() });
        assert!(queue.list(State::Pending).await.iter().all(|id| id.starts_with("new")));
        let rubbish = queue.store.purge(&queue.shard, false, "no such cursor").await;
        assert!(matches!(rubbish, Err(Refusal::Invalid { field: "cursor", .. })), "{rubbish:?}");
    }
}

async fn q7_purge_frees_every_value_it_took<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    bring(&queue, keyed("runs", 1, "k"), State::Running).await;
    queue.put((0..5).map(|n| keyed(&format!("waits {n}"), n, "k"))).await;
    assert_eq!(queue.purge(false).await, 5);
    queue.put([keyed("next", 1, "k")]).await;
    assert_eq!(queue.take_ids(9).await, [""; 0], "the running one holds its value");
    assert_eq!(queue.purge(true).await, 2);
    queue.put([keyed("last", 1, "k")]).await;
    assert_eq!(queue.take_ids(9).await, ["last"]);
}
