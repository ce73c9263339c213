//! The last attempts of a message, with worker, times and reason (Q22).

use super::bring;
use tallystone_model::limits::*;
use tallystone_model::message::Attempt;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_tests::queue::{lease_ref, lost, to};
use tallystone_tests::*;

over_each_store!(
    q22_every_attempt_is_there_with_worker_times_and_reason,
    q22_the_attempt_that_completed_is_the_last,
    q22_attempts_that_were_canceled_are_there,
    q22_a_lease_that_no_worker_got_was_no_attempt,
    q22_the_last_twenty_attempts_are_kept,
    q22_attempts_go_with_their_message,
    q22_lists_have_no_attempts,
);

/// What is compared of an attempt: its number, its worker, how long it ran, where it led, why.
fn shown(attempt: &Attempt) -> (u32, &str, u64, State, &str) {
    let ran_ms = attempt.ended_at_ms.saturating_sub(attempt.leased_at_ms);
    (attempt.number, &attempt.worker, ran_ms, attempt.state, &attempt.reason)
}

async fn q22_every_attempt_is_there_with_worker_times_and_reason<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(QueueConfig { max_attempts: 3, ..simple() }).await;
    queue.put([message("m", 1)]).await;
    assert_eq!(queue.get("m").await.last_attempts, []);
    let started_ms = stage.clock.now_ms();
    let mut fencing_tokens = Vec::new();
    for (worker, reason, delay_ms) in [("w1", "no gate", 0), ("w2", "", 500)] {
        let lease = queue.try_take(DequeueRequest { worker: worker.to_owned(), ..request(1) }).await;
        let lease = lease.expect("an open queue").remove(0);
        let current = queue.get("m").await.last_attempts.pop().expect("the current one");
        assert_eq!((current.state, current.ended_at_ms, current.worker.as_str()), (State::Running, 0, worker));
        stage.clock.advance(7);
        queue.extend(to(&lease), None, "").await.expect("a live lease");
        stage.clock.advance(3);
        queue.release(to(&lease), Some(delay_ms), reason).await.expect("a live lease");
        fencing_tokens.push(lease.fencing_token);
    }
    stage.clock.advance(500);
    fencing_tokens.push(queue.take_one().await.fencing_token);
    queue.pass(30_000).await;
    let errored = queue.get("m").await;
    assert_eq!(errored.state, State::Errored);
    let expected = [
        (1, "w1", 10, State::Pending, "no gate"),
        (2, "w2", 10, State::Invisible, ""),
        (3, "w", 30_000, State::Errored, "lease expired"),
    ];
    assert_eq!(errored.last_attempts.iter().map(shown).collect::<Vec<_>>(), expected);
    let begins: Vec<u64> = errored.last_attempts.iter().map(|attempt| attempt.leased_at_ms - started_ms).collect();
    assert_eq!(begins, [0, 10, 520]);
    assert_eq!(errored.last_attempts.iter().map(|a| a.fencing_token).collect::<Vec<_>>(), fencing_tokens);
    // A redrive counts from one again, and forgets nothing.
    queue.redrive("m").await.expect("an errored message");
    let lease = queue.take_one().await;
    queue.release_for_good(to(&lease), Verdict::Error, "no plane").await.expect("a live lease");
    let attempts = queue.get("m").await.last_attempts;
    assert_eq!((attempts.len(), shown(&attempts[3])), (4, (1, "w", 0, State::Errored, "no plane")));
}

async fn q22_the_attempt_that_completed_is_the_last<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    queue.put([message("m", 1)]).await;
    queue.release(to(&queue.take_one().await), Some(0), "busy").await.expect("a live lease");
    let lease = queue.take_one().await;
    stage.clock.advance(9);
    queue.complete(to(&lease)).await.expect("a live lease");
    let attempts = queue.get("m").await.last_attempts;
    let expected = [(1, "w", 0, State::Pending, "busy"), (2, "w", 9, State::Completed, "")];
    assert_eq!(attempts.iter().map(shown).collect::<Vec<_>>(), expected);
    // A coalesced message: the failed attempt stays, the successful run after which it runs again is not one of them.
    let queue = stage.queue(simple()).await;
    queue.put([message("m", 1)]).await;
    queue.release(to(&queue.take_one().await), Some(0), "busy").await.expect("a live lease");
    let lease = queue.take_one().await;
    queue.put([NewMessage { coalesce: true, ..message("m", 1) }]).await;
    queue.complete(to(&lease)).await.expect("a live lease");
    let attempts = queue.get("m").await.last_attempts;
    assert_eq!(attempts.iter().map(shown).collect::<Vec<_>>(), [(1, "w", 0, State::Pending, "busy")]);
}

async fn q22_attempts_that_were_canceled_are_there<S: Probe>(stage: &Stage<S>) {
    let canceled = async |force: bool| {
        let queue = stage.queue(simple()).await;
        let fencing_token = bring(&queue, message("m", 1), State::Running).await;
        let token = if force { 0 } else { fencing_token };
        queue.cancel_as(lease_ref("m", token), force, "flight is off").await.expect("a running message");
        queue.get("m").await.last_attempts
    };
    for force in [false, true] {
        let attempts = canceled(force).await;
        assert_eq!(attempts.iter().map(shown).collect::<Vec<_>>(), [(1, "w", 0, State::Canceled, "flight is off")]);
    }
}

async fn q22_a_lease_that_no_worker_got_was_no_attempt<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(QueueConfig { max_attempts: 1, ..exclusive() }).await;
    queue.put([keyed("m", 1, "k"), keyed("next", 2, "k")]).await;
    for _ in 0..3 {
        let lease = queue.take_one().await;
        assert_eq!((lease.id.as_str(), lease.attempt), ("m", 1));
        let undelivered = || Release::undelivered(to(&lease), "caller gone");
        let released = queue.release_as(undelivered()).await.expect("a live lease");
        assert_eq!((released.state, queue.release_as(undelivered()).await), (State::Pending, Ok(released)));
        assert_eq!(queue.complete(to(&lease)).await, lost("m", State::Pending));
        let message = queue.get("m").await;
        assert_eq!((message.attempts, message.reason.as_str()), (0, "caller gone"));
        assert_eq!(message.last_attempts, []);
    }
    // Coalesced meanwhile: the next run is its first.
    let coalesced = queue.take_one().await;
    queue.put([NewMessage { coalesce: true, ..keyed("m", 1, "k") }]).await;
    queue.release_as(Release::undelivered(to(&coalesced), "")).await.expect("a live lease");
    let message = queue.get("m").await;
    assert_eq!((message.state, message.attempts, message.coalesced), (State::Pending, 0, false));
    // Whatever bound holds by then.
    queue.reconfigure(QueuePatch { max_attempts: Some(2), ..QueuePatch::default() }).await;
    queue.release(to(&queue.take_one().await), Some(0), "").await.expect("a live lease");
    let second = queue.take_one().await;
    queue.reconfigure(QueuePatch { max_attempts: Some(1), ..QueuePatch::default() }).await;
    let released = queue.release_as(Release::undelivered(to(&second), "")).await.expect("a live lease");
    assert_eq!((released.state, queue.get("m").await.attempts), (State::Pending, 1));
    let last = queue.take_one().await;
    assert_eq!(queue.release(to(&last), Some(0), "").await.expect("a live lease").state, State::Errored);
}

async fn q22_the_last_twenty_attempts_are_kept<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(QueueConfig { max_attempts: ATTEMPTS_MAX, ..simple() }).await;
    queue.put([message("m", 1)]).await;
    for number in 1..=30_usize {
        // Texts of every length: an old attempt is left out whole.
        let worker = "w".repeat(number * 5 % (WORKER_BYTES_MAX + 1));
        let reason = "r".repeat(if number == 25 { REASON_BYTES_MAX } else { number * 9 % REASON_BYTES_MAX });
        let lease = queue.try_take(DequeueRequest { worker, ..request(1) }).await.expect("an open queue").remove(0);
        queue.release(to(&lease), Some(0), &reason).await.expect("a live lease");
        let attempts = queue.get("m").await.last_attempts;
        let numbers: Vec<u32> = attempts.iter().map(|attempt| attempt.number).collect();
        let first = number.saturating_sub(ATTEMPTS_KEPT) + 1;
        assert_eq!(numbers, (first as u32..=number as u32).collect::<Vec<_>>());
        assert_eq!(attempts.last().map(|attempt| attempt.reason.len()), Some(reason.len()));
    }
    queue.take_one().await;
    let attempts = queue.get("m").await.last_attempts;
    assert_eq!((attempts.len(), attempts[0].number, attempts[19].number), (ATTEMPTS_KEPT, 12, 31));
}

async fn q22_attempts_go_with_their_message<S: Probe>(stage: &Stage<S>) {
    for way in ["retention", "purge", "coalesce"] {
        let queue = stage.queue(simple()).await;
        queue.put([message("m", 1)]).await;
        queue.release(to(&queue.take_one().await), Some(0), "busy").await.expect("a live lease");
        queue.complete(to(&queue.take_one().await)).await.expect("a live lease");
        match way {
            "retention" => assert_eq!(queue.pass(600_000).await.collected, 1),
            "purge" => drop(queue.purge(false).await),
            _ => {}
        }
        queue.put([NewMessage { coalesce: true, ..message("m", 1) }]).await;
        assert_eq!(queue.get("m").await.last_attempts, [], "{way}");
    }
}

async fn q22_lists_have_no_attempts<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    bring(&queue, message("m", 1), State::Errored).await;
    assert_eq!(queue.get("m").await.last_attempts.len(), 1);
    assert_eq!(queue.list_by(State::Errored, 1).await[0].last_attempts, []);
    assert_eq!(queue.list_by(State::Errored, 1).await[0].reason, "broken");
}
