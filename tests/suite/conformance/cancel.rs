//! Cancel: by anyone, by the holder, by force: Q5, Q10.

use super::bring;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_tests::queue::{lease_ref, lost, missing, no_lease, went, wrong};
use tallystone_tests::*;

over_each_store!(
    q5_cancel_takes_a_waiting_message_out,
    q5_cancel_of_a_running_message_wants_its_lease_or_force,
    q10_a_repeated_cancel_answers_the_same,
    q5_cancel_refuses_what_ended_otherwise,
    q5_cancel_of_many_answers_each,
);

async fn q5_cancel_takes_a_waiting_message_out<S: Probe>(stage: &Stage<S>) {
    for state in [State::Invisible, State::Pending] {
        for force in [false, true] {
            let queue = stage.queue(exclusive()).await;
            bring(&queue, keyed("m", 1, "k"), state).await;
            stage.clock.advance(10);
            assert_eq!(queue.cancel_as(no_lease("m"), force, "no crew").await, went(State::Canceled, 2));
            let canceled = queue.get("m").await;
            assert_eq!((canceled.state, canceled.reason.as_str()), (State::Canceled, "no crew"));
            assert_eq!((canceled.attempts, canceled.state_since_ms), (0, stage.clock.now_ms()));
            assert_eq!(queue.pass(60_000).await.promoted, 0);
            assert_eq!(queue.take_ids(9).await, [""; 0]);
        }
    }
}

async fn q5_cancel_of_a_running_message_wants_its_lease_or_force<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    let fencing_token = bring(&queue, keyed("m", 1, "k"), State::Running).await;
    let before = queue.snapshot().await;
    assert_eq!(queue.cancel(no_lease("m"), "").await, wrong("m", State::Running));
    assert_eq!(queue.cancel(lease_ref("m", fencing_token + 1), "").await, lost("m", State::Running));
    assert_eq!(queue.snapshot().await, before);
    assert_eq!(queue.cancel_as(lease_ref("m", fencing_token + 1), true, "grounded").await, went(State::Canceled, 3));
    assert_eq!(queue.complete(lease_ref("m", fencing_token)).await, lost("m", State::Canceled));
    // A dead lease is none, and force needs none.
    let fencing_token = bring(&queue, keyed("n", 1, "k"), State::Running).await;
    stage.clock.advance(30_000);
    assert_eq!(queue.cancel(lease_ref("n", fencing_token), "").await, lost("n", State::Running));
    assert_eq!(queue.cancel_as(no_lease("n"), true, "").await, went(State::Canceled, 3));
    let fencing_token = bring(&queue, keyed("o", 1, "k"), State::Running).await;
    assert_eq!(queue.cancel(lease_ref("o", fencing_token), "").await, went(State::Canceled, 3), "by the holder");
    assert_eq!(queue.get("o").await.reason, "");
}

async fn q10_a_repeated_cancel_answers_the_same<S: Probe>(stage: &Stage<S>) {
    for state in [State::Invisible, State::Pending, State::Running] {
        let queue = stage.queue(simple()).await;
        let fencing_token = bring(&queue, message("m", 1), state).await;
        let first = queue.cancel_as(lease_ref("m", fencing_token), false, "first").await;
        assert!(first.is_ok());
        let before = queue.snapshot().await;
        assert_eq!(queue.cancel_as(lease_ref("m", fencing_token), false, "second").await, first);
        assert_eq!(queue.cancel_as(no_lease("m"), true, "third").await, first);
        assert_eq!(queue.snapshot().await, before);
    }
}

async fn q5_cancel_refuses_what_ended_otherwise<S: Probe>(stage: &Stage<S>) {
    for state in [State::Completed, State::Errored] {
        let queue = stage.queue(simple()).await;
        let fencing_token = bring(&queue, message("m", 1), state).await;
        let before = queue.snapshot().await;
        for (fencing_token, force) in [(0, false), (0, true), (fencing_token, false), (fencing_token, true)] {
            assert_eq!(queue.cancel_as(lease_ref("m", fencing_token), force, "").await, wrong("m", state));
        }
        assert_eq!(queue.snapshot().await, before);
    }
}

async fn q5_cancel_of_many_answers_each<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    bring(&queue, keyed("runs", 1, "r"), State::Running).await;
    queue.put((0..4).map(|n| keyed(&format!("m{n}"), n, "k"))).await;
    let cancel =
        |id: &str| Cancellation { id: tallystone_tests::id(id), fencing_token: 0, force: false, reason: String::new() };
    let batch = ["m0", "none", "m2", "runs", "m0"].map(cancel).to_vec();
    let results = queue.store.cancel(&queue.shard, batch).await;
    let canceled = went(State::Canceled, 2);
    let expected = vec![canceled.clone(), missing("none"), canceled.clone(), wrong("runs", State::Running), canceled];
    assert_eq!(results, Ok(expected));
    assert_eq!(queue.list(State::Pending).await, ["m1", "m3"]);
}
