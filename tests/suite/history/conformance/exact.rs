//! The same set of events leaves the same documents, in any order and with any repetitions: Q19.

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use tallystone_indexer::fold;
use tallystone_model::Recorded;
use tallystone_tests::history::{ONLY, Snapshot};
use tallystone_tests::{BEGIN_MS, HistoryFixture, HistoryUnderTest, Life, events_of};

over_history_stores!(
    q19_an_older_version_never_overwrites_a_newer_one,
    q19_events_in_any_order_and_repeated_leave_the_same_documents,
    q19_two_writers_at_once_leave_the_same_documents,
    q19_a_large_batch_is_one_call,
);

/// Thirty lives, several of which share an id one after the other.
fn lives<S: HistoryUnderTest>(history: &HistoryFixture<S>, sequence: u64) -> Vec<Life> {
    let life = |number: u64| {
        let name = format!("m{}", number % 20);
        let tags = [("carrier", "UA"), ("number", name.as_str())];
        let life = history.life(&name).sequence(sequence + number).at(BEGIN_MS + number * 100);
        let life = life.tagged(&tags).priority(number as i64).payload(b"begin");
        let life = life.enqueued_for(3).after(4).shown().after(number).leased("w1").after(1).extended();
        match number % 5 {
            0 => life,
            1 => life.after(5).released("no gate").reprioritized(-1).after(2).leased("w2"),
            2 => life.after(6).completed().after(30).collected(),
            3 => life.after(7).errored("broken"),
            _ => life.after(8).expired().canceled("late").collected(),
        }
    };
    (0..30).map(life).collect()
}

async fn snapshot<S: HistoryUnderTest>(history: &HistoryFixture<S>) -> Snapshot {
    history.snapshot(BEGIN_MS, BEGIN_MS + 10_000).await
}

/// The snapshot equals the fold of the events.
fn assert_is_fold_of(snapshot: &Snapshot, lives: &[Life]) {
    let mut transitions: Vec<_> = events_of(lives).iter().map(|recorded| fold::transition(&recorded.event)).collect();
    let mut returned: Vec<_> = snapshot.traces.values().flat_map(|trace| trace.transitions.clone()).collect();
    transitions.sort_by_key(|row| (row.sequence, row.version));
    returned.sort_by_key(|row| (row.sequence, row.version));
    assert_eq!(returned, transitions);
    let mut messages: Vec<_> = lives.iter().map(|life| fold::message(life.last())).collect();
    messages.sort_by_key(|message| std::cmp::Reverse((message.enqueued_at_ms, message.sequence)));
    assert_eq!(snapshot.messages, messages);
}

async fn q19_an_older_version_never_overwrites_a_newer_one<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let life =
        history.life("m").enqueued().after(1).leased("w").after(1).released("x").after(1).canceled("y").collected();
    let events = life.events();
    for number in (0..events.len()).rev() {
        history.record_and_show(&events[number..=number]).await;
        assert_eq!(history.trace("m").await.message, Some(fold::message(life.last())), "after version {}", number + 1);
        assert_eq!(history.trace("m").await.transitions.len(), events.len() - number);
        assert_eq!(history.depth(&[]).await, [0; 6]);
    }
}

async fn q19_events_in_any_order_and_repeated_leave_the_same_documents<S: HistoryUnderTest>(
    history: &HistoryFixture<S>,
) {
    let sequence = BEGIN_MS * 1_000;
    let lives_of_all = lives(history, sequence);
    let in_order = events_of(&lives_of_all);
    history.record_and_show(&in_order).await;
    let first = snapshot(history).await;
    assert_is_fold_of(&first, &lives_of_all);
    history.record_and_show(&in_order).await;
    assert_eq!(snapshot(history).await, first, "all of it again");
    for seed in 0..3 {
        // The same lives in another queue, which is empty.
        let other = HistoryFixture::new(history.held.clone(), history.another_queue().as_str());
        let mut events = renamed(&in_order, &other);
        events.extend(events.clone());
        let mut rng = StdRng::seed_from_u64(seed);
        events.shuffle(&mut rng);
        while !events.is_empty() {
            let rest = events.split_off(rng.random_range(1..=events.len().min(60)));
            other.record(&events).await;
            events = rest;
        }
        other.show().await;
        assert_eq!(at(&first, &other), snapshot(&other).await, "seed {seed}");
    }
}

async fn q19_two_writers_at_once_leave_the_same_documents<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let lives_of_all = lives(history, BEGIN_MS * 1_000);
    let in_order = events_of(&lives_of_all);
    let (one, other) = (&history.held.store, S::shared().await);
    let write = async |store: &S, seed: u64| {
        let mut events = in_order.clone();
        events.shuffle(&mut StdRng::seed_from_u64(seed));
        for batch in events.chunks(11) {
            assert_eq!(store.record(batch).await.expect("a record"), []);
        }
        store.advance(ONLY, 1).await.expect("an advance");
    };
    tokio::join!(write(one, 1), write(&other.store, 2));
    assert_is_fold_of(&snapshot(history).await, &lives_of_all);
}

async fn q19_a_large_batch_is_one_call<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let lives: Vec<Life> =
        (0..2_000).map(|number| history.life(&format!("m{number}")).enqueued().leased("w").completed()).collect();
    let events = events_of(&lives);
    history.record_and_show(&events).await;
    assert_eq!(history.depth(&[]).await, [0, 0, 0, 2_000, 0, 0]);
    assert_eq!(history.stats(BEGIN_MS, BEGIN_MS + 1, None).await[0].states[0].entered, 2_000);
    assert_eq!(history.store().record(&[]).await, Ok(Vec::new()), "a call without events");
}

/// The same events in the queue of another fixture.
fn renamed<S: HistoryUnderTest>(events: &[Recorded], history: &HistoryFixture<S>) -> Vec<Recorded> {
    let mut events = events.to_vec();
    events.iter_mut().for_each(|recorded| recorded.shard.queue = history.queue.clone());
    events
}

/// The same documents in the queue of another fixture.
fn at<S: HistoryUnderTest>(snapshot: &Snapshot, history: &HistoryFixture<S>) -> Snapshot {
    let mut snapshot = snapshot.clone();
    let of_traces = snapshot.traces.values_mut().flat_map(|trace| trace.message.as_mut());
    snapshot.messages.iter_mut().chain(of_traces).for_each(|message| message.queue = history.queue.to_string());
    snapshot
}
