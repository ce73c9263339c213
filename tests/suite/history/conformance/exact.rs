//! The same set of events leaves the same documents, in whatever order and however often it comes: Q19.

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use tallystone_indexer::fold;
use tallystone_model::Recorded;
use tallystone_tests::archive::{Everything, ONLY};
use tallystone_tests::{Archive, BEGIN_MS, Desk, Life, events_of};

over_history_stores!(
    q19_older_news_never_overwrites_newer,
    q19_events_in_any_order_and_twice_leave_the_same,
    q19_two_writers_at_once_leave_the_same,
    q19_a_large_batch_is_one_call,
);

/// Thirty lives, several of which share an id one after the other.
fn lives<S: Archive>(desk: &Desk<S>, sequence: u64) -> Vec<Life> {
    let life = |number: u64| {
        let name = format!("m{}", number % 20);
        let tags = [("carrier", "UA"), ("number", name.as_str())];
        let life = desk.life(&name).sequence(sequence + number).at(BEGIN_MS + number * 100);
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

async fn everything<S: Archive>(desk: &Desk<S>) -> Everything {
    desk.everything(BEGIN_MS, BEGIN_MS + 10_000).await
}

/// What the events say, told by nobody but the folding.
fn assert_is_all_of(everything: &Everything, lives: &[Life]) {
    let mut transitions: Vec<_> = events_of(lives).iter().map(|recorded| fold::transition(&recorded.event)).collect();
    let mut told: Vec<_> = everything.traces.values().flat_map(|trace| trace.transitions.clone()).collect();
    transitions.sort_by_key(|row| (row.sequence, row.version));
    told.sort_by_key(|row| (row.sequence, row.version));
    assert_eq!(told, transitions);
    let mut messages: Vec<_> = lives.iter().map(|life| fold::message(life.last())).collect();
    messages.sort_by_key(|message| std::cmp::Reverse((message.enqueued_at_ms, message.sequence)));
    assert_eq!(everything.messages, messages);
}

async fn q19_older_news_never_overwrites_newer<S: Archive>(desk: &Desk<S>) {
    let life = desk.life("m").enqueued().after(1).leased("w").after(1).released("x").after(1).canceled("y").collected();
    let events = life.events();
    for number in (0..events.len()).rev() {
        desk.tell(&events[number..=number]).await;
        assert_eq!(desk.trace("m").await.message, Some(fold::message(life.last())), "after version {}", number + 1);
        assert_eq!(desk.trace("m").await.transitions.len(), events.len() - number);
        assert_eq!(desk.depth(&[]).await, [0; 6]);
    }
}

async fn q19_events_in_any_order_and_twice_leave_the_same<S: Archive>(desk: &Desk<S>) {
    let sequence = BEGIN_MS * 1_000;
    let lives_of_all = lives(desk, sequence);
    let in_order = events_of(&lives_of_all);
    desk.tell(&in_order).await;
    let first = everything(desk).await;
    assert_is_all_of(&first, &lives_of_all);
    desk.tell(&in_order).await;
    assert_eq!(everything(desk).await, first, "all of it again");
    for seed in 0..3 {
        // The same lives in another queue, so that nothing of them is there yet.
        let other = Desk::new(desk.held.clone(), desk.another_queue().as_str());
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
        assert_eq!(at(&first, &other), everything(&other).await, "seed {seed}");
    }
}

async fn q19_two_writers_at_once_leave_the_same<S: Archive>(desk: &Desk<S>) {
    let lives_of_all = lives(desk, BEGIN_MS * 1_000);
    let in_order = events_of(&lives_of_all);
    let (one, other) = (&desk.held.store, S::shared().await);
    let write = async |store: &S, seed: u64| {
        let mut events = in_order.clone();
        events.shuffle(&mut StdRng::seed_from_u64(seed));
        for batch in events.chunks(11) {
            assert_eq!(store.record(batch).await.expect("a record"), []);
        }
        store.advance(ONLY, 1).await.expect("an advance");
    };
    tokio::join!(write(one, 1), write(&other.store, 2));
    assert_is_all_of(&everything(desk).await, &lives_of_all);
}

async fn q19_a_large_batch_is_one_call<S: Archive>(desk: &Desk<S>) {
    let lives: Vec<Life> =
        (0..2_000).map(|number| desk.life(&format!("m{number}")).enqueued().leased("w").completed()).collect();
    let events = events_of(&lives);
    desk.tell(&events).await;
    assert_eq!(desk.depth(&[]).await, [0, 0, 0, 2_000, 0, 0]);
    assert_eq!(desk.stats(BEGIN_MS, BEGIN_MS + 1, None).await[0].states[0].entered, 2_000);
    assert_eq!(desk.store().record(&[]).await, Ok(Vec::new()), "so is one without events");
}

/// The same events in the queue of another desk.
fn renamed<S: Archive>(events: &[Recorded], desk: &Desk<S>) -> Vec<Recorded> {
    let mut events = events.to_vec();
    events.iter_mut().for_each(|recorded| recorded.shard.queue = desk.queue.clone());
    events
}

/// The same documents in the queue of another desk.
fn at<S: Archive>(everything: &Everything, desk: &Desk<S>) -> Everything {
    let mut everything = everything.clone();
    let of_traces = everything.traces.values_mut().flat_map(|trace| trace.message.as_mut());
    everything.messages.iter_mut().chain(of_traces).for_each(|message| message.queue = desk.queue.to_string());
    everything
}
