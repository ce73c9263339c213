//! The table of arrows, its versions, and the event that each leaves: Q5, Q6, Q15.

use super::bring;
use std::collections::BTreeSet;
use tallystone_model::state::ARROWS;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_tests::queue::{follow, lease_ref, no_lease, to};
use tallystone_tests::*;

over_each_store!(
    q5_every_arrow_of_the_table_is_taken_and_no_other,
    q6_q15_each_write_leaves_one_event_of_the_next_version,
    q15_an_event_holds_all_that_history_needs,
    q15_a_refused_call_leaves_no_event,
);

async fn q5_every_arrow_of_the_table_is_taken_and_no_other<S: Probe>(stage: &Stage<S>) {
    let backoff = Backoff { kind: BackoffKind::Fixed, base_ms: 10, max_ms: 10, jitter_percent: 0 };
    let config = QueueConfig { terminal_retention_ms: 1_000, errored_retention_ms: 1_000, ..exclusive() };
    let queue = stage.queue(config).await;
    let m = |id: &str, priority| keyed(id, priority, id);
    let again = |id: &str, priority| NewMessage { coalesce: true, ..m(id, priority) };
    let later_ms = stage.clock.now_ms() + 500;
    // Where it waits: other priorities, other times, coalescing.
    bring(&queue, m("a", 0), State::Invisible).await;
    queue.put([again("a", -1)]).await;
    queue.reprioritize("a", -2).await.expect("an invisible message");
    queue.show_at("a", 0).await.expect("an invisible message");
    queue.put([again("a", -3)]).await;
    queue.reprioritize("a", -4).await.expect("a pending message");
    queue.show_at("a", later_ms).await.expect("a pending message");
    queue.pass(500).await;
    // Where it runs, and each way out.
    let lease = queue.take_one().await;
    queue.reprioritize("a", -5).await.expect("a running message");
    queue.extend(to(&lease), None, "").await.expect("a live lease");
    queue.put([again("a", 0)]).await;
    queue.complete(to(&lease)).await.expect("a live lease");
    queue.release(to(&queue.take_one().await), Some(0), "").await.expect("a live lease");
    queue.release(to(&queue.take_one().await), Some(5), "").await.expect("a live lease");
    queue.pass(5).await;
    queue.take_one().await;
    queue.pass(30_000).await;
    queue.reconfigure(QueuePatch { retry_backoff: Some(backoff), ..QueuePatch::default() }).await;
    queue.take_one().await;
    queue.pass(30_000).await;
    queue.pass(10).await;
    queue.reconfigure(QueuePatch { max_attempts: Some(1), ..QueuePatch::default() }).await;
    queue.take_one().await;
    queue.pass(30_000).await;
    assert_eq!(queue.state("a").await, State::Errored);
    queue.redrive("a").await.expect("an errored message");
    queue.release(to(&queue.take_one().await), None, "").await.expect("a live lease");
    // Canceled from each live state, and back.
    for (name, state) in [("b", State::Invisible), ("c", State::Pending), ("d", State::Running)] {
        let fencing_token = bring(&queue, m(name, -9), state).await;
        queue.cancel(lease_ref(name, fencing_token), "").await.expect("a live message");
    }
    let fencing_token = bring(&queue, m("i", -9), State::Running).await;
    queue.release_for_good(lease_ref("i", fencing_token), Verdict::Cancel, "").await.expect("a live lease");
    queue.redrive("b").await.expect("a canceled message");
    queue.cancel(no_lease("b"), "").await.expect("a pending message");
    bring(&queue, m("e", -9), State::Completed).await;
    // Collected from each terminal state by time, then each live state purged.
    queue.pass(1_000).await;
    assert_eq!(queue.depth().await, Depth::default());
    for (name, state) in [("f", State::Invisible), ("g", State::Pending), ("h", State::Running)] {
        bring(&queue, m(name, -9 - state as i64), state).await;
    }
    queue.purge(true).await;
    let taken: BTreeSet<_> = queue.events().await.iter().map(|event| (event.from, event.to, event.by)).collect();
    let table: BTreeSet<_> = ARROWS.iter().map(|arrow| (arrow.from, arrow.to, arrow.by)).collect();
    assert_eq!(table.difference(&taken).collect::<Vec<_>>(), [] as [&_; 0], "in the table, not taken");
    assert_eq!(taken.difference(&table).collect::<Vec<_>>(), [] as [&_; 0], "taken, not in the table");
}

async fn q6_q15_each_write_leaves_one_event_of_the_next_version<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    let mut version = 0;
    let mut wrote = async |what: &str| {
        version += 1;
        assert_eq!(queue.get("m").await.version, version, "{what}");
        let events = queue.events_of("m").await;
        assert_eq!((events.len() as u32, events.last().map(|event| event.version)), (version, Some(version)), "{what}");
    };
    queue.put([keyed("m", 5, "k"), keyed("other", 9, "k")]).await;
    wrote("enqueue").await;
    queue.reprioritize("m", 4).await.expect("a pending message");
    wrote("update").await;
    let lease = queue.take_one().await;
    wrote("dequeue").await;
    queue.extend(to(&lease), None, "").await.expect("a live lease");
    wrote("extend").await;
    queue.put([NewMessage { coalesce: true, ..keyed("m", 3, "k") }]).await;
    wrote("coalesce").await;
    queue.complete(to(&lease)).await.expect("a live lease");
    wrote("complete").await;
    let lease = queue.take_one().await;
    wrote("dequeue").await;
    queue.release(to(&lease), Some(9), "").await.expect("a live lease");
    wrote("release").await;
    queue.pass(9).await;
    wrote("window elapsed").await;
    queue.take_one().await;
    wrote("dequeue").await;
    queue.pass(30_000).await;
    wrote("lease expired").await;
    queue.cancel(no_lease("m"), "").await.expect("a pending message");
    wrote("cancel").await;
    queue.redrive("m").await.expect("a canceled message");
    wrote("redrive").await;
    queue.take_one().await;
    wrote("dequeue").await;
    assert_eq!(queue.get("other").await.version, 1, "it only waited");
}

async fn q15_an_event_holds_all_that_history_needs<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    let metadata = [(KEY, "N1"), ("origin", "JFK"), ("über", "✈")];
    let enqueued_ms = stage.clock.now_ms();
    queue.put([tagged("m", i64::MIN, &metadata)]).await;
    stage.clock.advance(10);
    let wanted = DequeueRequest { worker: "worker ü".to_owned(), lease_ms: Some(5_000), ..request(1) };
    let lease = queue.try_take(wanted).await.expect("an open queue").remove(0);
    stage.clock.advance(10);
    queue.release(to(&lease), Some(77), "no gate").await.expect("a live lease");
    queue.pass(77).await;
    queue.reprioritize("m", 5).await.expect("a pending message");
    queue.cancel(no_lease("m"), "").await.expect("a pending message");
    let events = queue.events().await;
    let first = &events[0];
    let expected = Event {
        id: id("m"),
        version: 1,
        from: None,
        to: Some(State::Pending),
        by: Cause::Enqueue,
        at_ms: enqueued_ms,
        from_since_ms: 0,
        since_ms: enqueued_ms,
        sequence: first.sequence,
        enqueued_at_ms: enqueued_ms,
        priority: i64::MIN,
        metadata: Metadata::parse(metadata.map(|(key, value)| (key.to_owned(), value.to_owned())).into())
            .expect("pairs"),
        attempts: 0,
        fencing_token: 0,
        worker: String::new(),
        due_ms: 0,
        reason: String::new(),
        last_reason: String::new(),
        coalesced: false,
        payload: None,
        result: Default::default(),
    };
    assert_eq!(*first, expected);
    let dequeued = Event {
        version: 2,
        from: Some(State::Pending),
        to: Some(State::Running),
        by: Cause::Dequeue,
        at_ms: enqueued_ms + 10,
        from_since_ms: enqueued_ms,
        since_ms: enqueued_ms + 10,
        attempts: 1,
        fencing_token: lease.fencing_token,
        worker: "worker ü".to_owned(),
        due_ms: lease.expires_at_ms,
        ..expected
    };
    assert_eq!(events[1], dequeued);
    let released = Event {
        version: 3,
        from: Some(State::Running),
        to: Some(State::Invisible),
        by: Cause::Release,
        at_ms: enqueued_ms + 20,
        from_since_ms: enqueued_ms + 10,
        since_ms: enqueued_ms + 20,
        due_ms: enqueued_ms + 97,
        reason: "no gate".to_owned(),
        last_reason: "no gate".to_owned(),
        ..dequeued
    };
    assert_eq!(events[2], released);
    let elapsed = Event {
        version: 4,
        from: Some(State::Invisible),
        to: Some(State::Pending),
        by: Cause::WindowElapsed,
        at_ms: enqueued_ms + 97,
        from_since_ms: enqueued_ms + 20,
        since_ms: enqueued_ms + 97,
        due_ms: 0,
        reason: String::new(),
        ..released
    };
    assert_eq!(events[3], elapsed);
    let updated = Event {
        version: 5,
        from: Some(State::Pending),
        by: Cause::UpdateMessage,
        priority: 5,
        from_since_ms: enqueued_ms + 97,
        ..elapsed
    };
    assert_eq!(events[4], updated);
    assert_eq!(events[5], Event { version: 6, to: Some(State::Canceled), by: Cause::Cancel, ..updated });
    assert_eq!(events.len(), 6);
}

async fn q15_a_refused_call_leaves_no_event<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(exclusive()).await;
    bring(&queue, keyed("m", 1, "k"), State::Completed).await;
    let before = queue.events().await;
    assert!(queue.try_put(message("lacks its key", 1)).await.is_err());
    assert!(queue.try_put(keyed("m", 2, "k")).await.is_err());
    assert!(queue.complete(lease_ref("m", 3)).await.is_err());
    assert!(queue.release(lease_ref("m", 3), None, "").await.is_err());
    assert!(queue.cancel(no_lease("m"), "").await.is_err());
    assert!(queue.redrive("m").await.is_err());
    assert!(queue.reprioritize("m", 3).await.is_err());
    assert!(queue.take(9).await.is_empty());
    assert_eq!(queue.events().await, before);
    assert_eq!(follow(&before)[&id("m")], (3, Some(State::Completed)));
}
