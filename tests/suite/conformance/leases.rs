//! What the holder of a lease may do, how often, and until when: Q5, Q10, Q11.

use super::bring;
use tallystone_model::limits::*;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_tests::queue::{lease_ref, lost, missing, no_lease, to, went, wrong};
use tallystone_tests::*;

over_each_store!(
    q10_a_repeated_end_of_a_lease_answers_the_same_and_changes_nothing,
    q10_only_the_verb_that_ended_a_lease_is_answered_again,
    q10_a_repetition_is_answered_until_the_next_lease_has_ended,
    q10_a_repeated_extension_answers_the_same_and_changes_nothing,
    q11_a_lease_is_dead_the_moment_it_expires,
    q11_a_lost_lease_is_refused_in_every_state_and_changes_nothing,
    q11_an_extension_moves_the_end_both_ways,
    q11_a_message_that_never_was_is_not_found,
    q5_release_goes_where_the_call_says,
    q5_a_run_that_spends_the_last_attempt_ends_in_error,
    q5_a_batch_acts_in_order_and_one_bad_item_spoils_no_other,
    q7_full_batches_of_every_verb,
    q3_names_and_reasons_at_their_bounds_are_kept,
);

/// The verbs that end a lease, by name.
const ENDS: [&str; 7] = ["complete", "release", "release later", "error", "never again", "give up", "cancel"];

fn release_of(lease: &LeaseRef, delay_ms: Option<u64>) -> Release {
    Release { lease: lease.clone(), delay_ms, reason: String::new(), verdict: Verdict::Retry }
}

async fn end<S: Probe>(queue: &TestQueue<S>, how: &str, lease: LeaseRef) -> Result<Transition, Refusal> {
    match how {
        "complete" => queue.complete(lease).await,
        "release" => queue.release(lease, Some(0), "no fuel").await,
        "release later" => queue.release(lease, Some(500), "no fuel").await,
        "error" => queue.release(lease, None, "no fuel").await,
        "never again" => queue.release_for_good(lease, Verdict::Error, "no fuel").await,
        "give up" => queue.release_for_good(lease, Verdict::Cancel, "no fuel").await,
        _ => queue.cancel(lease, "no fuel").await,
    }
}

/// A queue where message "m" runs, on its last attempt if that is what `how` needs.
async fn running<S: Probe>(stage: &Stage<S>, how: &str) -> (TestQueue<S>, u64) {
    let queue = stage.queue(exclusive()).await;
    let max_attempts = if how == "error" { Some(1) } else { None };
    let fencing_token = bring(&queue, NewMessage { max_attempts, ..keyed("m", 1, "k") }, State::Running).await;
    (queue, fencing_token)
}

async fn q10_a_repeated_end_of_a_lease_answers_the_same_and_changes_nothing<S: Probe>(stage: &Stage<S>) {
    for how in ENDS {
        let (queue, fencing_token) = running(stage, how).await;
        let first = end(&queue, how, lease_ref("m", fencing_token)).await;
        assert!(first.is_ok(), "{how}: {first:?}");
        let before = queue.snapshot().await;
        // After the lease would have expired, too, and through another server.
        for _ in 0..3 {
            assert_eq!(end(&queue.through(&stage.other), how, lease_ref("m", fencing_token)).await, first, "{how}");
            stage.clock.advance(20_000);
        }
        assert_eq!(queue.snapshot().await, before, "{how}");
    }
}

async fn q10_only_the_verb_that_ended_a_lease_is_answered_again<S: Probe>(stage: &Stage<S>) {
    for how in ENDS {
        for other in ENDS {
            let (queue, fencing_token) = running(stage, how).await;
            let first = end(&queue, how, lease_ref("m", fencing_token)).await.expect("a live lease");
            let before = queue.snapshot().await;
            let release = |how: &str| !matches!(how, "complete" | "cancel");
            // A verdict that an earlier Release has not carried out is refused.
            let carried_out = match other {
                "never again" => first.state == State::Errored,
                "give up" => first.state == State::Canceled,
                _ => true,
            };
            let answer = end(&queue, other, lease_ref("m", fencing_token)).await;
            let is_canceled = other == "cancel" && first.state == State::Canceled;
            if how == other || (release(how) && release(other) && carried_out) || is_canceled {
                assert_eq!(answer, Ok(first), "{other} after {how}");
            } else if other == "cancel" && first.state.is_terminal() {
                assert_eq!(answer, wrong("m", first.state), "{other} after {how}");
            } else {
                assert_eq!(answer, lost("m", first.state), "{other} after {how}");
            }
            assert_eq!(
                queue.extend(lease_ref("m", fencing_token), None, "").await,
                lost("m", first.state),
                "after {how}"
            );
            assert_eq!(queue.snapshot().await, before, "{other} after {how}");
        }
    }
}

async fn q10_a_repetition_is_answered_until_the_next_lease_has_ended<S: Probe>(stage: &Stage<S>) {
    let (queue, first) = running(stage, "release").await;
    let released = end(&queue, "release", lease_ref("m", first)).await;
    let second = queue.take_one().await;
    assert_eq!(end(&queue, "release", lease_ref("m", first)).await, released, "while the next one lives");
    assert_eq!(queue.state("m").await, State::Running);
    queue.release(to(&second), Some(0), "").await.expect("a live lease");
    assert_eq!(end(&queue, "release", lease_ref("m", first)).await, lost("m", State::Pending));
    assert_eq!(queue.release(to(&second), Some(0), "").await, went(State::Pending, 5));
    // An expiry ends a lease too, and no call repeats it.
    let third = queue.take_one().await;
    queue.pass(30_000).await;
    assert_eq!(queue.release(to(&second), Some(0), "").await, lost("m", State::Pending));
    for how in ENDS {
        assert_eq!(end(&queue, how, to(&third)).await, lost("m", State::Pending), "{how}");
    }
}

async fn q10_a_repeated_extension_answers_the_same_and_changes_nothing<S: Probe>(stage: &Stage<S>) {
    let (queue, fencing_token) = running(stage, "complete").await;
    let lease = || lease_ref("m", fencing_token);
    stage.clock.advance(1_000);
    let first = queue.extend(lease(), Some(40_000), "x").await;
    assert_eq!(first, Ok(stage.clock.now_ms() + 40_000));
    stage.clock.advance(1_000);
    let before = queue.snapshot().await;
    assert_eq!(queue.through(&stage.other).extend(lease(), Some(40_000), "x").await, first);
    assert_eq!(queue.snapshot().await, before);
    let second = queue.extend(lease(), Some(40_000), "y").await;
    assert_eq!(second, Ok(stage.clock.now_ms() + 40_000), "another request is another extension");
    assert_eq!(queue.get("m").await.version, 4);
    stage.clock.advance(1_000);
    for _ in 0..2 {
        assert_eq!(queue.extend(lease(), None, "").await, Ok(stage.clock.now_ms() + 30_000), "without an id always");
        stage.clock.advance(1_000);
    }
    assert_eq!(queue.get("m").await.version, 6);
    stage.clock.advance(29_000);
    assert_eq!(queue.extend(lease(), None, "").await, lost("m", State::Running), "a dead lease stays dead");
    // The next lease knows nothing of the last one's requests.
    queue.extend(lease(), None, "z").await.expect_err("dead");
    let next = queue.take_one().await;
    assert_eq!(queue.extend(to(&next), Some(50_000), "y").await, Ok(stage.clock.now_ms() + 50_000));
}

async fn q11_a_lease_is_dead_the_moment_it_expires<S: Probe>(stage: &Stage<S>) {
    for how in ENDS {
        let (queue, fencing_token) = running(stage, how).await;
        stage.clock.advance(30_000);
        let before = queue.snapshot().await;
        assert_eq!(end(&queue, how, lease_ref("m", fencing_token)).await, lost("m", State::Running), "{how}");
        assert_eq!(queue.extend(lease_ref("m", fencing_token), None, "").await, lost("m", State::Running));
        assert_eq!(queue.snapshot().await, before);
        let (queue, fencing_token) = running(stage, how).await;
        stage.clock.advance(29_999);
        assert!(end(&queue, how, lease_ref("m", fencing_token)).await.is_ok(), "{how} in its last millisecond");
    }
}

async fn q11_a_lost_lease_is_refused_in_every_state_and_changes_nothing<S: Probe>(stage: &Stage<S>) {
    for state in State::ALL {
        let queue = stage.queue(exclusive()).await;
        let stale = bring(&queue, keyed("m", 1, "k"), State::Running).await;
        queue.pass(30_000).await;
        // Lapsed and pending; on from here by other hands.
        match state {
            State::Pending => {}
            State::Invisible => drop(queue.show_at("m", stage.clock.now_ms() + 9).await.expect("pending")),
            State::Canceled => drop(queue.cancel(no_lease("m"), "").await.expect("pending")),
            State::Running => drop(queue.take_one().await),
            State::Completed => drop(queue.complete(to(&queue.take_one().await)).await.expect("a live lease")),
            State::Errored => {
                queue.reconfigure(QueuePatch { max_attempts: Some(1), ..QueuePatch::default() }).await;
                queue.release(to(&queue.take_one().await), None, "").await.expect("a live lease");
            }
        }
        assert_eq!(queue.state("m").await, state);
        let before = queue.snapshot().await;
        for fencing_token in [stale, stale + 100, u64::MAX] {
            for how in ENDS {
                let answer = end(&queue, how, lease_ref("m", fencing_token)).await;
                match (how, state) {
                    ("cancel", State::Canceled) => {
                        assert_eq!(answer, went(State::Canceled, queue.get("m").await.version))
                    }
                    ("cancel", State::Completed | State::Errored) => assert_eq!(answer, wrong("m", state)),
                    _ => assert_eq!(answer, lost("m", state), "{how}, {state}"),
                }
            }
            assert_eq!(queue.extend(lease_ref("m", fencing_token), None, "").await, lost("m", state), "{state}");
        }
        assert_eq!(queue.snapshot().await, before, "{state}");
    }
}

async fn q11_an_extension_moves_the_end_both_ways<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    queue.put([keyed("m", 1, "k")]).await;
    let wanted = DequeueRequest { lease_ms: Some(20_000), ..request(1) };
    let lease = queue.try_take(wanted).await.expect("an open queue").remove(0);
    stage.clock.advance(10_000);
    let now_ms = stage.clock.now_ms();
    assert_eq!(queue.extend(to(&lease), Some(LEASE_MS_MAX), "").await, Ok(now_ms + LEASE_MS_MAX));
    assert_eq!(queue.extend(to(&lease), None, "").await, Ok(now_ms + 20_000), "the length it was granted for");
    assert_eq!(queue.extend(to(&lease), Some(LEASE_MS_MIN), "").await, Ok(now_ms + LEASE_MS_MIN), "sooner");
    let message = queue.get("m").await;
    assert_eq!((message.due_ms, message.version, message.attempts), (now_ms + LEASE_MS_MIN, 5, 1));
    assert_eq!(message.state_since_ms, lease.leased_at_ms);
    assert_eq!(queue.pass(LEASE_MS_MIN).await.expired, 1);
    assert_eq!(queue.state("m").await, State::Pending);
}

async fn q11_a_message_that_never_was_is_not_found<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    for how in ENDS {
        assert_eq!(end(&queue, how, lease_ref("m", 7)).await, missing("m"), "{how}");
    }
    assert_eq!(queue.extend(lease_ref("m", 7), None, "").await, missing("m"));
}

async fn q5_release_goes_where_the_call_says<S: Probe>(stage: &Stage<S>) {
    let backoff = Backoff { kind: BackoffKind::Fixed, base_ms: 300, max_ms: 300, jitter_percent: 0 };
    for (retry_backoff, delay_ms, due_in_ms) in [
        (Backoff::default(), None, 0),
        (Backoff::default(), Some(0), 0),
        (Backoff::default(), Some(700), 700),
        (Backoff::default(), Some(DELAY_MS_MAX), DELAY_MS_MAX),
        (backoff, None, 300),
        (backoff, Some(0), 0),
        (backoff, Some(700), 700),
    ] {
        let queue = stage.queue(QueueConfig { retry_backoff, ..simple() }).await;
        let fencing_token = bring(&queue, message("m", 1), State::Running).await;
        stage.clock.advance(10);
        let now_ms = stage.clock.now_ms();
        let (state, due_ms) = match due_in_ms {
            0 => (State::Pending, 0),
            due_in_ms => (State::Invisible, now_ms + due_in_ms),
        };
        assert_eq!(queue.release(lease_ref("m", fencing_token), delay_ms, "no gate").await, went(state, 3));
        let released = queue.get("m").await;
        assert_eq!((released.state, released.due_ms, released.state_since_ms), (state, due_ms, now_ms));
        assert_eq!((released.attempts, released.fencing_token, released.worker.as_str()), (1, fencing_token, "w"));
        assert_eq!(released.reason, "no gate");
    }
}

async fn q5_a_run_that_spends_the_last_attempt_ends_in_error<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(QueueConfig { max_attempts: 3, ..simple() }).await;
    queue.put([message("m", 1)]).await;
    for attempt in 1..=3 {
        let lease = queue.take_one().await;
        assert_eq!((lease.attempt, lease.max_attempts), (attempt, 3));
        match attempt {
            1 => drop(queue.release(to(&lease), Some(0), "first").await.expect("a live lease")),
            2 => assert_eq!(queue.pass(30_000).await.expired, 1),
            // Whatever its delay: there is no next run.
            _ => assert_eq!(queue.release(to(&lease), Some(500), "").await, went(State::Errored, 7)),
        }
    }
    let errored = queue.get("m").await;
    assert_eq!((errored.state, errored.attempts, errored.reason.as_str()), (State::Errored, 3, "lease expired"));
    assert_eq!(queue.take_ids(1).await, [""; 0]);
}

async fn q5_a_batch_acts_in_order_and_one_bad_item_spoils_no_other<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    queue.put((0..5).map(|n| keyed(&format!("m{n}"), n, &format!("k{n}")))).await;
    queue.put((0..5).map(|n| keyed(&format!("next{n}"), n, &format!("k{n}")))).await;
    let leases: Vec<LeaseRef> = queue.take(9).await.iter().map(to).collect();
    let (store, shard) = (&queue.store, &queue.shard);
    let batch = vec![leases[0].clone(), lease_ref("m0", 3), lease_ref("none", 3), leases[0].clone(), leases[1].clone()];
    let done = went(State::Completed, 3);
    let results = store.complete(shard, batch.into_iter().map(Completion::from).collect()).await;
    assert_eq!(results, Ok(vec![done.clone(), lost("m0", State::Completed), missing("none"), done.clone(), done]));
    let release = |lease: &LeaseRef| release_of(lease, Some(0));
    let results = store.release(shard, vec![release(&leases[1]), release(&leases[2]), release(&leases[2])]).await;
    let released = went(State::Pending, 3);
    assert_eq!(results, Ok(vec![lost("m1", State::Completed), released.clone(), released]));
    let extend = |lease: &LeaseRef, lease_ms| Extension { lease: lease.clone(), lease_ms, request_id: "x".to_owned() };
    let extensions = vec![extend(&leases[2], None), extend(&leases[3], Some(1_000)), extend(&leases[3], Some(9_000))];
    let ends = Extended { expires_at_ms: stage.clock.now_ms() + 1_000 };
    let results = store.extend_lease(shard, extensions).await;
    assert_eq!(results, Ok(vec![lost("m2", State::Pending), Ok(ends.clone()), Ok(ends)]));
    assert_eq!(queue.take_ids(9).await, ["next0", "next1", "m2"]);
}

async fn q7_full_batches_of_every_verb<S: Probe>(stage: &Stage<S>) {
    // The oracle reads every message for each item.
    let some = if stage.redis.is_some() { BATCH_ITEMS_MAX } else { BATCH_ITEMS_MAX / 10 };
    for config in [simple(), exclusive()] {
        let queue = stage.queue(config).await;
        let (store, shard) = (&queue.store, &queue.shard);
        for turn in 0..3 {
            queue.put((0..some).map(|n| keyed(&format!("{turn}/{n}"), turn, &format!("k{n}")))).await;
        }
        let take = async || queue.take(some).await.iter().map(to).collect::<Vec<_>>();
        let all = |states: Items<Transition>, state: State| {
            let states = states.expect("a queue");
            assert_eq!(states.len(), some);
            assert!(states.iter().all(|went| went.as_ref().is_ok_and(|went| went.state == state)), "{state}");
        };
        let leases = take().await;
        let extend = |lease: &LeaseRef| Extension { lease: lease.clone(), lease_ms: None, request_id: "x".to_owned() };
        let extended = store.extend_lease(shard, leases.iter().map(extend).collect()).await.expect("a queue");
        assert!(extended.len() == some && extended.iter().all(Result::is_ok));
        let release = |lease: &LeaseRef| release_of(lease, None);
        all(store.release(shard, leases.iter().map(release).collect()).await, State::Pending);
        all(store.complete(shard, take().await.into_iter().map(Completion::from).collect()).await, State::Completed);
        let cancel =
            |LeaseRef { id, fencing_token }| Cancellation { id, fencing_token, force: false, reason: String::new() };
        all(store.cancel(shard, take().await.into_iter().map(cancel).collect()).await, State::Canceled);
        let canceled: Vec<MessageId> = (0..some).map(|n| id(&format!("1/{n}"))).collect();
        all(store.redrive(shard, canceled.clone()).await, State::Pending);
        let found = store.get_messages(shard, canceled).await.expect("a queue");
        assert!(found.iter().all(|message| message.as_ref().is_ok_and(|message| message.version == 4)));
        let some = some as u64;
        assert_eq!(queue.depth().await, Depth { pending: 2 * some, completed: some, ..Depth::default() });
    }
}

async fn q3_names_and_reasons_at_their_bounds_are_kept<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    let worker = "w".repeat(WORKER_BYTES_MAX);
    queue.put([message("m", 1)]).await;
    for turn in 0..2 {
        let request_id = format!("{turn}{}", "r".repeat(REQUEST_ID_BYTES_MAX - 1));
        let wanted = DequeueRequest { worker: worker.clone(), request_id, ..request(1) };
        let lease = queue.try_take(wanted.clone()).await.expect("an open queue").remove(0);
        assert_eq!(queue.try_take(wanted).await, Ok(vec![lease.clone()]));
        let reason = format!("{turn}{}", "y".repeat(REASON_BYTES_MAX - 1));
        queue.release(to(&lease), Some(0), &reason).await.expect("a live lease");
        let released = queue.get("m").await;
        assert_eq!((&released.worker, &released.reason), (&worker, &reason));
        let event = queue.events().await.pop().expect("events");
        assert_eq!((event.worker, event.reason), (worker.clone(), reason));
    }
}
