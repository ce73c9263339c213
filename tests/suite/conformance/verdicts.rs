//! What a worker says of its message: done, with a result; never again; to be canceled: Q23, Q29.

use super::bring;
use tallystone_model::limits::RESULT_BYTES_MAX;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_tests::queue::{lease_ref, lost, to, went};
use tallystone_tests::*;

over_each_store!(
    q23_never_again_is_errored_at_once_with_the_reason,
    q29_a_worker_cancels_its_message_with_the_reason,
    q23_a_verdict_counts_for_a_coalesced_message_too,
    q23_a_result_stays_with_the_completed_message,
    q23_the_first_result_stays,
    q23_a_message_that_runs_again_keeps_no_result,
    q23_a_result_goes_with_its_message,
);

async fn q23_never_again_is_errored_at_once_with_the_reason<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    let fencing_token = bring(&queue, keyed("m", 1, "k"), State::Running).await;
    queue.put([keyed("next", 2, "k")]).await;
    let lease = || lease_ref("m", fencing_token);
    assert_eq!(queue.release_for_good(lease(), Verdict::Error, "no such gate").await, went(State::Errored, 3));
    let errored = queue.get("m").await;
    assert_eq!((errored.state, errored.reason.as_str()), (State::Errored, "no such gate"));
    assert_eq!((errored.attempts, errored.max_attempts), (1, 5), "attempts are left");
    assert_eq!(queue.take_ids(9).await, ["next"], "its key is free");
    let event = queue.events_of("m").await.pop().expect("events");
    assert_eq!((event.by, event.reason.as_str()), (Cause::Release, "no such gate"));
    assert_eq!(queue.redrive("m").await, went(State::Pending, 4));
}

async fn q29_a_worker_cancels_its_message_with_the_reason<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    let fencing_token = bring(&queue, keyed("m", 1, "k"), State::Running).await;
    queue.put([keyed("next", 2, "k")]).await;
    let lease = || lease_ref("m", fencing_token);
    let canceled = went(State::Canceled, 3);
    assert_eq!(queue.release_for_good(lease(), Verdict::Cancel, "flight is off").await, canceled);
    assert_eq!(queue.get("m").await.reason, "flight is off");
    assert_eq!(queue.take_ids(9).await, ["next"], "its key is free");
    assert_eq!(queue.cancel(lease(), "again").await, canceled, "it is canceled already");
    assert_eq!(queue.complete(lease()).await, lost("m", State::Canceled));
}

async fn q23_a_verdict_counts_for_a_coalesced_message_too<S: Probe>(stage: &Stage<S>) {
    for (verdict, state) in [(Verdict::Error, State::Errored), (Verdict::Cancel, State::Canceled)] {
        let queue = stage.queue(simple()).await;
        let fencing_token = bring(&queue, message("m", 1), State::Running).await;
        queue.put([NewMessage { coalesce: true, ..message("m", 1) }]).await;
        let ended = queue.release_for_good(lease_ref("m", fencing_token), verdict, "").await;
        assert_eq!(ended, went(state, 4));
        let ended = queue.get("m").await;
        assert_eq!((ended.coalesced, ended.attempts), (false, 1));
        queue.redrive("m").await.expect("a message that has ended");
        assert_eq!(queue.complete(to(&queue.take_one().await)).await, went(State::Completed, 7), "the mark is gone");
    }
}

async fn q23_a_result_stays_with_the_completed_message<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    let longest: Vec<u8> = (0..RESULT_BYTES_MAX).map(|n| n as u8).collect();
    let names = ["none", "short", "longest"];
    queue.put(names.map(|name| keyed(name, 1, name))).await;
    let leases = queue.take(3).await;
    let results: [&[u8]; 3] = [b"", b"ok", &longest];
    // One call with and without results.
    let completion = |(lease, result): (&Lease, &[u8])| Completion { lease: to(lease), result: result.to_vec().into() };
    let completions = leases.iter().zip(results).map(completion).collect();
    let ends = queue.store.complete(&queue.shard, completions).await.expect("a queue");
    assert!(ends.iter().all(|end| *end == went(State::Completed, 3)), "{ends:?}");
    for (name, result) in names.iter().zip(results) {
        assert_eq!(queue.get(name).await.result, result, "{name}");
        assert_eq!(queue.facts(name).await.message.result, result, "{name}");
    }
    let listed = queue.list_by(State::Completed, 9).await;
    assert_eq!(listed.iter().map(|message| message.result.len()).sum::<usize>(), 2 + RESULT_BYTES_MAX);
}

async fn q23_the_first_result_stays<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    let fencing_token = bring(&queue, message("m", 1), State::Running).await;
    let lease = || lease_ref("m", fencing_token);
    let twice = [b"one", b"two"].map(|result| Completion { lease: lease(), result: result.to_vec().into() });
    let done = went(State::Completed, 3);
    assert_eq!(queue.store.complete(&queue.shard, twice.into()).await, Ok(vec![done.clone(), done.clone()]));
    assert_eq!(queue.complete_with(lease(), b"three").await, done);
    assert_eq!(queue.get("m").await.result, "one");
    assert_eq!(queue.complete_with(lease_ref("m", fencing_token + 1), b"four").await, lost("m", State::Completed));
    assert_eq!(queue.get("m").await.result, "one");
}

async fn q23_a_message_that_runs_again_keeps_no_result<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    let fencing_token = bring(&queue, message("m", 1), State::Running).await;
    queue.put([NewMessage { coalesce: true, ..message("m", 1) }]).await;
    assert_eq!(queue.complete_with(lease_ref("m", fencing_token), b"first").await, went(State::Pending, 4));
    assert_eq!(queue.get("m").await.result, "");
    assert_eq!(queue.complete(to(&queue.take_one().await)).await, went(State::Completed, 6));
    assert_eq!(queue.get("m").await.result, "");
}

async fn q23_a_result_goes_with_its_message<S: Probe>(stage: &Stage<S>) {
    for way in ["retention", "purge", "coalesce"] {
        let queue = stage.queue(simple()).await;
        let fencing_token = bring(&queue, message("m", 1), State::Running).await;
        queue.complete_with(lease_ref("m", fencing_token), b"old").await.expect("a live lease");
        match way {
            "retention" => assert_eq!(queue.pass(600_000).await.collected, 1),
            "purge" => drop(queue.purge(false).await),
            _ => {}
        }
        queue.put([NewMessage { coalesce: true, ..message("m", 1) }]).await;
        queue.complete(to(&queue.take_one().await)).await.expect("a live lease");
        assert_eq!(queue.get("m").await.result, "", "{way}");
    }
}
