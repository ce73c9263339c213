//! What time alone does: windows, lapsed leases, backoff, retention: Q2, Q5.

use super::bring;
use tallystone_model::limits::*;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_tests::queue::{missing, no_lease, to};
use tallystone_tests::*;

over_each_store!(
    q5_a_sweep_moves_what_is_due_and_nothing_else,
    q5_a_sweep_is_bounded_and_says_when_there_is_more,
    q5_a_lapsed_lease_goes_the_way_of_a_failed_attempt,
    q2_fixed_backoff_waits_the_same_each_time,
    q2_exponential_backoff_doubles_to_its_bound,
    q2_jitter_shortens_by_its_share_at_most,
    q5_terminal_messages_stay_for_the_retention_and_no_longer,
    q5_a_changed_retention_counts_for_what_has_ended,
    q5_a_redriven_message_is_not_collected_by_its_first_end,
    q5_a_purged_message_leaves_nothing_for_its_namesake,
    q5_collection_is_bounded_and_in_order,
    q5_an_internal_queue_that_retains_nothing_forgets_what_is_completed,
);

async fn q5_a_sweep_moves_what_is_due_and_nothing_else<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(QueueConfig { terminal_retention_ms: 50_000, ..simple() }).await;
    let started_ms = stage.clock.now_ms();
    assert_eq!(queue.sweep().await, Swept { now_ms: started_ms, ..Swept::default() });
    bring(&queue, message("done", 0), State::Completed).await;
    bring(&queue, message("runs", 0), State::Running).await;
    queue.put([NewMessage { invisibility_ms: Some(20_000), ..message("hides", 0) }, message("waits", 1)]).await;
    let step = async |ms, due: &str| {
        let swept = queue.pass(ms).await;
        let expected = ["promoted", "expired", "collected"].map(|kind| u64::from(kind == due));
        assert_eq!([swept.promoted, swept.expired, swept.collected], expected, "{due:?}");
        assert_eq!(swept.now_ms, stage.clock.now_ms());
        swept.next_ms.map(|at_ms| at_ms - started_ms)
    };
    assert_eq!(step(19_999, "").await, Some(20_000));
    assert_eq!(step(1, "promoted").await, Some(30_000));
    assert_eq!(step(9_999, "").await, Some(30_000));
    assert_eq!(step(1, "expired").await, Some(50_000));
    assert_eq!(step(19_999, "").await, Some(50_000));
    assert_eq!(step(1, "collected").await, None);
    assert_eq!(queue.list(State::Pending).await.len(), 3);
}

async fn q5_a_sweep_is_bounded_and_says_when_there_is_more<S: Probe>(stage: &Stage<S>) {
    let some = SWEEP_ITEMS_MAX + 40;
    let queue = stage.queue(QueueConfig { lease_ms: 5_000, ..exclusive() }).await;
    queue.put((0..some).map(|n| keyed(&format!("runs {n}"), 1, &format!("k{n}")))).await;
    assert_eq!(queue.take(some).await.len(), some);
    queue
        .put(
            (0..some)
                .map(|n| NewMessage { invisibility_ms: Some(1), ..keyed(&format!("hides {n}"), 1, &format!("k{n}")) }),
        )
        .await;
    let first = queue.pass(5_000).await;
    assert_eq!((first.promoted, first.expired), (SWEEP_ITEMS_MAX as u64, SWEEP_ITEMS_MAX as u64));
    assert!(first.next_ms.is_some_and(|at_ms| at_ms <= first.now_ms), "there is more: {first:?}");
    let second = queue.sweep().await;
    assert_eq!((second.promoted, second.expired, second.next_ms), (40, 40, None));
    assert_eq!(queue.depth().await, Depth { pending: 2 * some as u64, ..Depth::default() });
}

async fn q5_a_lapsed_lease_goes_the_way_of_a_failed_attempt<S: Probe>(stage: &Stage<S>) {
    let backoff = Backoff { kind: BackoffKind::Fixed, base_ms: 400, max_ms: 400, jitter_percent: 0 };
    for (retry_backoff, max_attempts, state, due_in_ms) in [
        (Backoff::default(), 2, State::Pending, 0),
        (backoff, 2, State::Invisible, 400),
        (backoff, 1, State::Errored, 30 * 86_400_000),
    ] {
        let queue = stage.queue(QueueConfig { retry_backoff, max_attempts, ..exclusive() }).await;
        let fencing_token = bring(&queue, keyed("m", 1, "k"), State::Running).await;
        // Seen late: what follows counts from when it was seen.
        assert_eq!(queue.pass(31_000).await.expired, 1);
        let lapsed = queue.get("m").await;
        let due_ms = if due_in_ms == 0 { 0 } else { stage.clock.now_ms() + due_in_ms };
        assert_eq!((lapsed.state, lapsed.due_ms, lapsed.version), (state, due_ms, 3));
        assert_eq!((lapsed.attempts, lapsed.fencing_token, lapsed.worker.as_str()), (1, fencing_token, "w"));
        assert_eq!((lapsed.reason.as_str(), lapsed.state_since_ms), ("lease expired", stage.clock.now_ms()));
    }
}

/// The delays after each of so many lapsed attempts, and the tokens they were drawn from.
async fn delays<S: Probe>(stage: &Stage<S>, retry_backoff: Backoff, attempts: u32) -> Vec<(u64, u64)> {
    let queue = stage.queue(QueueConfig { retry_backoff, max_attempts: ATTEMPTS_MAX, ..simple() }).await;
    queue.put([message("m", 1)]).await;
    let mut delays = Vec::new();
    for attempt in 1..=attempts {
        let lease = queue.take_one().await;
        // Both ways a run can come to nothing wait the same.
        match attempt % 2 {
            0 => drop(queue.release(to(&lease), None, "").await.expect("a live lease")),
            _ => assert_eq!(queue.pass(30_000).await.expired, 1),
        }
        let delay_ms = queue.get("m").await.due_ms.saturating_sub(stage.clock.now_ms());
        assert_eq!(delay_ms, retry_backoff.delay_ms(attempt, lease.fencing_token), "attempt {attempt}");
        delays.push((delay_ms, lease.fencing_token));
        stage.clock.advance(delay_ms);
    }
    delays
}

async fn q2_fixed_backoff_waits_the_same_each_time<S: Probe>(stage: &Stage<S>) {
    let backoff = Backoff { kind: BackoffKind::Fixed, base_ms: 250, max_ms: 1_000, jitter_percent: 0 };
    assert!(delays(stage, backoff, 5).await.iter().all(|(delay_ms, _)| *delay_ms == 250));
}

async fn q2_exponential_backoff_doubles_to_its_bound<S: Probe>(stage: &Stage<S>) {
    let backoff = Backoff { kind: BackoffKind::Exponential, base_ms: 100, max_ms: 900, jitter_percent: 0 };
    let waits: Vec<u64> = delays(stage, backoff, 6).await.iter().map(|(delay_ms, _)| *delay_ms).collect();
    assert_eq!(waits, [100, 200, 400, 800, 900, 900]);
    // Long after 2^attempts has left every number behind.
    let backoff = Backoff { max_ms: DELAY_MS_MAX, ..backoff };
    assert_eq!(delays(stage, backoff, 60).await.last().map(|(delay_ms, _)| *delay_ms), Some(DELAY_MS_MAX));
}

async fn q2_jitter_shortens_by_its_share_at_most<S: Probe>(stage: &Stage<S>) {
    for (kind, jitter_percent) in [(BackoffKind::Fixed, 25), (BackoffKind::Exponential, 100), (BackoffKind::Fixed, 1)] {
        let backoff = Backoff { kind, base_ms: 1_000, max_ms: 1_000, jitter_percent };
        let waits = delays(stage, backoff, 30).await;
        let shortest_ms = 1_000 - 10 * u64::from(jitter_percent);
        assert!(waits.iter().all(|(delay_ms, _)| (shortest_ms..=1_000).contains(delay_ms)), "{waits:?}");
        let distinct: std::collections::BTreeSet<u64> = waits.iter().map(|(delay_ms, _)| *delay_ms).collect();
        assert!(distinct.len() > 5, "it draws: {waits:?}");
    }
}

async fn q5_terminal_messages_stay_for_the_retention_and_no_longer<S: Probe>(stage: &Stage<S>) {
    for state in [State::Completed, State::Canceled, State::Errored] {
        let (terminal_retention_ms, errored_retention_ms) =
            if state == State::Errored { (1_000, 5_000) } else { (5_000, 1_000) };
        let config = QueueConfig { terminal_retention_ms, errored_retention_ms, ..exclusive() };
        let queue = stage.queue(config).await;
        stage.clock.advance(10);
        bring(&queue, keyed("m", 1, "k"), state).await;
        let ended = queue.get("m").await;
        assert_eq!(ended.due_ms, stage.clock.now_ms() + 5_000);
        assert_eq!(queue.pass(4_999).await.collected, 0);
        assert_eq!(queue.get("m").await, ended);
        assert_eq!(queue.pass(1).await.collected, 1, "{state}");
        assert_eq!(queue.try_get("m").await, missing("m"));
        assert_eq!(queue.depth().await, Depth::default());
        let last = queue.events_of("m").await.pop().expect("events");
        assert_eq!((last.from, last.to, last.by, last.version), (Some(state), None, Cause::Collect, ended.version + 1));
        assert_eq!(queue.cancel(no_lease("m"), "").await, missing("m"));
        assert_eq!(queue.redrive("m").await, missing("m"));
    }
}

async fn q5_a_changed_retention_counts_for_what_has_ended<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    bring(&queue, message("m", 1), State::Completed).await;
    let retention = |ms| QueuePatch { terminal_retention_ms: Some(ms), ..QueuePatch::default() };
    stage.clock.advance(1_000);
    queue.reconfigure(retention(2_000)).await;
    assert_eq!(queue.get("m").await.due_ms, stage.clock.now_ms() + 1_000);
    queue.reconfigure(retention(900_000)).await;
    assert_eq!(queue.pass(800_000).await.collected, 0);
    queue.reconfigure(retention(0)).await;
    assert_eq!(queue.sweep().await.collected, 1);
}

async fn q5_a_redriven_message_is_not_collected_by_its_first_end<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(QueueConfig { terminal_retention_ms: 5_000, ..simple() }).await;
    for name in ["waits", "ends again"] {
        bring(&queue, message(name, 1), State::Canceled).await;
        queue.redrive(name).await.expect("a canceled message");
    }
    stage.clock.advance(3_000);
    queue.cancel(no_lease("ends again"), "").await.expect("a pending message");
    assert_eq!(queue.list(State::Canceled).await, ["ends again"]);
    assert_eq!(queue.pass(2_000).await.collected, 0);
    assert_eq!((queue.state("waits").await, queue.state("ends again").await), (State::Pending, State::Canceled));
    assert_eq!(queue.pass(2_999).await.collected, 0);
    assert_eq!(queue.pass(1).await.collected, 1);
    assert_eq!(queue.state("waits").await, State::Pending);
}

async fn q5_a_purged_message_leaves_nothing_for_its_namesake<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(QueueConfig { terminal_retention_ms: 5_000, ..simple() }).await;
    bring(&queue, message("m", 1), State::Completed).await;
    queue.purge(false).await;
    stage.clock.advance(3_000);
    bring(&queue, message("m", 1), State::Completed).await;
    assert_eq!(queue.list(State::Completed).await, ["m"]);
    assert_eq!(queue.pass(4_999).await.collected, 0, "the retention counts from its own end");
    assert_eq!(queue.pass(1).await.collected, 1);
}

async fn q5_collection_is_bounded_and_in_order<S: Probe>(stage: &Stage<S>) {
    let some = SWEEP_ITEMS_MAX + 40;
    let queue = stage.queue(QueueConfig { terminal_retention_ms: 5_000, ..simple() }).await;
    queue.put((0..some).map(|n| message(&format!("m{n:03}"), n as i64))).await;
    let leases: Vec<LeaseRef> = queue.take(some).await.iter().map(to).collect();
    for lease in &leases {
        queue.complete(lease.clone()).await.expect("a live lease");
    }
    let first = queue.pass(5_000).await;
    assert_eq!(first.collected, SWEEP_ITEMS_MAX as u64);
    assert!(first.next_ms.is_some_and(|at_ms| at_ms <= first.now_ms));
    assert_eq!(queue.list(State::Completed).await[0], format!("m{SWEEP_ITEMS_MAX:03}"), "the oldest go first");
    assert_eq!((queue.sweep().await.collected, queue.sweep().await.collected), (40, 0));
}

async fn q5_an_internal_queue_that_retains_nothing_forgets_what_is_completed<S: Probe>(stage: &Stage<S>) {
    for config in [simple(), exclusive()] {
        let queue = stage.internal_queue(QueueConfig { terminal_retention_ms: 0, ..config }).await;
        queue.put([keyed("m", 1, "k"), keyed("n", 2, "k")]).await;
        let lease = queue.take(1).await.remove(0);
        let completed = queue.complete(to(&lease)).await;
        assert_eq!(completed, Ok(Transition { state: State::Completed, version: 3 }));
        assert_eq!(queue.try_get("m").await, missing("m"));
        assert_eq!(queue.depth().await, Depth { pending: 1, ..Depth::default() });
        assert_eq!(queue.complete(to(&lease)).await, missing("m"), "nothing of it is remembered");
        // The sweep finds nothing, and the id is free.
        assert_eq!(queue.sweep().await.collected, 0);
        queue.put([keyed("m", 1, "k")]).await;
        let again = queue.take(1).await.remove(0);
        assert_eq!((again.id.as_str(), again.attempt), ("m", 1));
        assert_eq!(queue.complete(to(&lease)).await.map_err(|refusal| refusal.reason()), Err("LEASE_LOST"));
        // One that is to run once more stays.
        queue.put([NewMessage { coalesce: true, ..keyed("m", 1, "k") }]).await;
        assert_eq!(queue.complete(to(&again)).await.map(|end| end.state), Ok(State::Pending));
        // The other ends leave it to the sweep.
        queue.cancel(no_lease("n"), "").await.expect("a pending message");
        assert_eq!(queue.sweep().await.collected, 1);
    }
}
