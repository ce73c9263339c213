//! Filters: what they choose, what they count, and the indexes behind them: Q8, Q9.

use super::bring;
use tallystone_model::limits::INDEXES_MAX;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_tests::queue::{lease_ref, no_lease, to};
use tallystone_tests::*;

over_each_store!(
    q8_a_filter_is_a_conjunction,
    q8_any_of_several_filters_takes_the_most_urgent_over_all,
    q8_a_message_that_passes_two_filters_is_leased_once,
    q8_filters_follow_every_change_of_a_message,
    q8_declared_indexes_and_those_made_on_demand_answer_alike,
    q8_four_keys_have_an_index_for_each_of_their_sets,
    q8_one_index_too_many_is_refused_alone,
    q8_a_declared_index_takes_the_place_of_an_undeclared_one,
    q9_depth_by_filter_follows_every_transition,
    q9_depth_counts_every_state_by_every_filter,
    q9_a_filter_that_no_message_passes_counts_nothing,
);

/// Flights: id, priority, tail, origin, carrier.
const FLIGHTS: [(&str, i64, &str, &str, &str); 7] = [
    ("a", 1, "N1", "EWR", "UA"),
    ("b", 2, "N1", "JFK", "DL"),
    ("c", 3, "N2", "JFK", "UA"),
    ("d", 4, "N3", "LGA", "UA"),
    ("e", 5, "N2", "EWR", "DL"),
    ("f", 6, "N4", "JFK", "DL"),
    ("g", 7, "N5", "JFK", "UA"),
];

fn flight(id: &str) -> NewMessage {
    let (id, priority, tail, origin, carrier) = *FLIGHTS.iter().find(|flight| flight.0 == id).expect("a flight");
    tagged(id, priority, &[(KEY, tail), ("origin", origin), ("carrier", carrier)])
}

fn flights() -> impl Iterator<Item = NewMessage> {
    FLIGHTS.iter().map(|known| flight(known.0))
}

async fn q8_a_filter_is_a_conjunction<S: Probe>(stage: &Stage<S>) {
    for config in [simple(), exclusive()] {
        let queue = stage.queue(config.clone()).await;
        queue.put(flights().chain([keyed("bare", 0, "N9")])).await;
        let ua_jfk = filter(&[("carrier", "UA"), ("origin", "JFK")]);
        assert_eq!(queue.take_where(1, std::slice::from_ref(&ua_jfk)).await, ["c"]);
        assert_eq!(queue.take_where(9, &[ua_jfk]).await, ["g"]);
        assert_eq!(queue.take_where(9, &[filter(&[("carrier", "AA")])]).await, [""; 0]);
        assert_eq!(queue.take_where(9, &[filter(&[("nothing has this key", "x")])]).await, [""; 0]);
        // b and a are of one aircraft, c and e of another.
        let jfk = queue.take_where(9, &[filter(&[("origin", "JFK")])]).await;
        assert_eq!(jfk, ["b", "f"]);
        let rest = queue.take_ids(9).await;
        match config.queue_type {
            QueueType::Simple => assert_eq!(rest, ["bare", "a", "d", "e"]),
            QueueType::Exclusive { .. } => assert_eq!(rest, ["bare", "d"]),
        }
    }
}

async fn q8_any_of_several_filters_takes_the_most_urgent_over_all<S: Probe>(stage: &Stage<S>) {
    for config in [simple(), exclusive()] {
        let queue = stage.queue(config).await;
        queue.put(flights()).await;
        // Two indexes, two lists of one of them.
        let any = [filter(&[("origin", "LGA")]), filter(&[("carrier", "DL")]), filter(&[("origin", "EWR")])];
        let reversed: Vec<Filter> = any.iter().rev().cloned().collect();
        assert_eq!(queue.take_where(1, &any).await, ["a"]);
        let rest = queue.take_where(9, &reversed).await;
        match queue.describe().await.expect("a queue").config.queue_type {
            QueueType::Simple => assert_eq!(rest, ["b", "d", "e", "f"]),
            QueueType::Exclusive { .. } => assert_eq!(rest, ["d", "e", "f"], "b's aircraft flies a"),
        }
    }
}

async fn q8_a_message_that_passes_two_filters_is_leased_once<S: Probe>(stage: &Stage<S>) {
    for config in [simple(), exclusive()] {
        let queue = stage.queue(config).await;
        queue.put([flight("b"), flight("f"), flight("c")]).await;
        let any = [filter(&[("origin", "JFK")]), filter(&[("carrier", "DL")]), filter(&[("origin", "JFK")])];
        assert_eq!(queue.take_where(9, &any).await, ["b", "c", "f"]);
        assert_eq!(queue.take_where(9, &any).await, [""; 0]);
    }
}

async fn q8_filters_follow_every_change_of_a_message<S: Probe>(stage: &Stage<S>) {
    for config in [simple(), exclusive()] {
        let queue = stage.queue(config).await;
        let jfk = [filter(&[("origin", "JFK")])];
        queue.depth_of(&jfk[0]).await;
        queue.put([flight("c"), flight("f"), flight("g"), flight("a")]).await;
        queue.reprioritize("g", -1).await.expect("a pending message");
        assert_eq!(queue.take_where(1, &jfk).await, ["g"]);
        queue.put([NewMessage { coalesce: true, priority: 0, ..flight("f") }]).await;
        assert_eq!(queue.take_where(1, &jfk).await, ["f"]);
        queue.show_at("c", stage.clock.now_ms() + 50).await.expect("a pending message");
        assert_eq!(queue.take_where(1, &jfk).await, [""; 0]);
        stage.clock.advance(50);
        assert_eq!(queue.take_where(1, &jfk).await, ["c"]);
        queue.release(lease_ref("c", queue.get("c").await.fencing_token), Some(0), "").await.expect("a live lease");
        queue.cancel(no_lease("c"), "").await.expect("a pending message");
        assert_eq!(queue.take_where(1, &jfk).await, [""; 0]);
        queue.redrive("c").await.expect("a canceled message");
        stage.clock.advance(30_000);
        assert_eq!(queue.take_where(9, &jfk).await, ["g", "f", "c"], "two leases have lapsed, one was redriven");
    }
}

async fn q8_declared_indexes_and_those_made_on_demand_answer_alike<S: Probe>(stage: &Stage<S>) {
    let declared = QueueConfig { indexes: vec![index(&["origin"]), index(&["carrier", "origin"])], ..exclusive() };
    let later = stage.queue(exclusive()).await;
    let [on_demand, declared] = [stage.queue(exclusive()).await, stage.queue(declared).await];
    for queue in [&on_demand, &declared, &later] {
        queue.put(flights()).await;
    }
    later.reconfigure(QueuePatch { indexes: Some(vec![index(&["origin"])]), ..QueuePatch::default() }).await;
    for queue in [&on_demand, &declared, &later] {
        assert_eq!(queue.depth_of(&filter(&[("origin", "JFK")])).await.pending, 4);
        assert_eq!(queue.take_where(9, &[filter(&[("origin", "JFK"), ("carrier", "UA")])]).await, ["c", "g"]);
        assert_eq!(queue.take_where(9, &[filter(&[("origin", "JFK")])]).await, ["b", "f"]);
    }
}

async fn q8_four_keys_have_an_index_for_each_of_their_sets<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    let keys = ["a", "b", "c", "d"];
    for n in 0..16 {
        let pairs = keys.iter().enumerate().map(|(bit, key)| (*key, if n >> bit & 1 == 1 { "1" } else { "0" }));
        queue.put([tagged(&format!("m{n}"), 1, &pairs.collect::<Vec<_>>())]).await;
    }
    for set in 1..16 {
        let pairs: Vec<_> =
            keys.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1).map(|(_, key)| (*key, "1")).collect();
        assert_eq!(queue.depth_of(&filter(&pairs)).await.pending, 16 >> pairs.len(), "{pairs:?}");
    }
}

async fn q8_one_index_too_many_is_refused_alone<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(QueueConfig { indexes: vec![index(&["declared"])], ..simple() }).await;
    queue.put([tagged("m", 1, &[("k1", "v"), ("k2", "v"), ("declared", "v")])]).await;
    for n in 1..INDEXES_MAX {
        queue.depth_of(&filter(&[(&format!("k{n}"), "v")])).await;
    }
    let one_more = filter(&[("one more", "v")]);
    let refusal = Refusal::TooManyIndexes { queue: queue.name().to_string() };
    assert_eq!(queue.try_depth_of(&one_more).await, Err(refusal.clone()));
    // The other requests of the same call are answered.
    let by = |filters: Vec<Filter>| DequeueRequest { filters, ..request(1) };
    let known = filter(&[("k1", "v"), ("k2", "v")]);
    let requests =
        vec![by(vec![one_more.clone()]), by(vec![filter(&[("k1", "v")]), one_more]), by(vec![known]), request(1)];
    let answer = queue.dequeue(requests).await.expect("an open queue");
    assert_eq!(answer.leases[..3], [Err(refusal.clone()), Err(refusal.clone()), Err(refusal)]);
    assert_eq!(answer.leases[3].as_ref().map(Vec::len), Ok(1));
}

async fn q8_a_declared_index_takes_the_place_of_an_undeclared_one<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    queue.put([tagged("m", 1, &[("k1", "v"), ("declared", "v")])]).await;
    // Undeclared ones take all places.
    for n in 0..INDEXES_MAX {
        queue.depth_of(&filter(&[(&format!("k{n}"), "v")])).await;
    }
    let declared = filter(&[("declared", "v")]);
    let refusal = Refusal::TooManyIndexes { queue: queue.name().to_string() };
    assert_eq!(queue.try_depth_of(&declared).await, Err(refusal.clone()));
    let patch = QueuePatch { indexes: Some(vec![index(&["declared"])]), ..QueuePatch::default() };
    stage.store.update_queue(queue.name(), patch).await.expect("a place");
    assert_eq!(queue.depth_of(&declared).await.pending, 1);
    // The one that was used first has made room; the others are there.
    assert_eq!(queue.try_depth_of(&filter(&[("k0", "v")])).await, Err(refusal.clone()));
    for n in 1..INDEXES_MAX {
        queue.depth_of(&filter(&[(&format!("k{n}"), "v")])).await;
    }
    // A declared index makes room for none.
    let all = (0..INDEXES_MAX).map(|n| index(&[&format!("d{n}")])).collect();
    let patch = QueuePatch { indexes: Some(all), ..QueuePatch::default() };
    stage.store.update_queue(queue.name(), patch).await.expect("all places");
    assert_eq!(queue.try_depth_of(&filter(&[("k1", "v")])).await, Err(refusal));
    assert_eq!(queue.depth_of(&filter(&[("d15", "v")])).await.pending, 0);
    assert_eq!(queue.take(1).await.len(), 1);
}

/// Every arrow, the depth of all and of two filters before and after.
async fn q9_depth_by_filter_follows_every_transition<S: Probe>(stage: &Stage<S>) {
    let backoff = Backoff { kind: BackoffKind::Fixed, base_ms: 500, max_ms: 500, jitter_percent: 0 };
    let config = QueueConfig { retry_backoff: backoff, max_attempts: 2, terminal_retention_ms: 90_000, ..exclusive() };
    let queue = stage.queue(config).await;
    let (mine, other) = (filter(&[("k", "mine")]), filter(&[("k", "other")]));
    queue.put([tagged("other key", i64::MAX, &[(KEY, "other key"), ("k", "other")])]).await;
    let m = |priority| tagged("m", priority, &[(KEY, "v"), ("k", "mine")]);
    let is = async |step: &str, state: Option<State>| {
        let mut expected = Depth::default();
        if let Some(state) = state {
            *expected.of_mut(state) = 1;
        }
        assert_eq!(queue.depth_of(&mine).await, expected, "{step}");
        let of_other = Depth { pending: 1, ..Depth::default() };
        assert_eq!(queue.depth_of(&other).await, of_other, "{step}");
        expected.pending += 1;
        assert_eq!(queue.depth().await, expected, "{step}");
    };
    let run = async || queue.take_one().await;
    is("nothing there", None).await;
    queue.put([NewMessage { invisibility_ms: Some(100), ..m(1) }]).await;
    is("enqueue, invisible", Some(State::Invisible)).await;
    queue.pass(100).await;
    is("window elapsed", Some(State::Pending)).await;
    queue.put([NewMessage { coalesce: true, ..m(0) }]).await;
    queue.reprioritize("m", -1).await.expect("a pending message");
    is("other priority", Some(State::Pending)).await;
    queue.show_at("m", stage.clock.now_ms() + 70).await.expect("a pending message");
    is("made invisible", Some(State::Invisible)).await;
    queue.show_at("m", 0).await.expect("an invisible message");
    is("made visible", Some(State::Pending)).await;
    let lease = run().await;
    is("dequeue", Some(State::Running)).await;
    queue.extend(to(&lease), None, "").await.expect("a live lease");
    queue.put([NewMessage { coalesce: true, ..m(-2) }]).await;
    is("marked", Some(State::Running)).await;
    queue.complete(to(&lease)).await.expect("a live lease");
    is("complete, coalesced", Some(State::Pending)).await;
    queue.release(to(&run().await), Some(0), "").await.expect("a live lease");
    is("release", Some(State::Pending)).await;
    run().await;
    queue.pass(30_000).await;
    is("lease expired, none left", Some(State::Errored)).await;
    queue.redrive("m").await.expect("an errored message");
    is("redrive", Some(State::Pending)).await;
    run().await;
    queue.pass(30_000).await;
    is("lease expired, backoff", Some(State::Invisible)).await;
    queue.cancel(no_lease("m"), "").await.expect("an invisible message");
    is("cancel", Some(State::Canceled)).await;
    queue.put([NewMessage { coalesce: true, ..m(1) }]).await;
    is("coalesced onto a terminal one", Some(State::Pending)).await;
    queue.complete(to(&run().await)).await.expect("a live lease");
    is("complete", Some(State::Completed)).await;
    queue.pass(90_000).await;
    is("collected", None).await;
}

async fn q9_depth_counts_every_state_by_every_filter<S: Probe>(stage: &Stage<S>) {
    for config in [simple(), exclusive()] {
        let queue = stage.queue(config).await;
        let (even, odd) = (filter(&[("half", "even")]), filter(&[("half", "odd"), ("state", "running")]));
        // The first half of the states before the index is there, the second after.
        for (at, state) in State::ALL.into_iter().chain(State::ALL).enumerate() {
            if at == 6 {
                queue.depth_of(&even).await;
            }
            let half = if at % 2 == 0 { "even" } else { "odd" };
            let name = format!("m{at}");
            let message = tagged(&name, -(at as i64), &[(KEY, &name), ("half", half), ("state", state.name())]);
            bring(&queue, message, state).await;
        }
        let all = Depth { invisible: 2, pending: 2, running: 2, completed: 2, canceled: 2, errored: 2 };
        assert_eq!(queue.depth().await, all);
        // Invisible, running and canceled come at even places.
        assert_eq!(queue.depth_of(&even).await, Depth { invisible: 2, running: 2, canceled: 2, ..Depth::default() });
        assert_eq!(queue.depth_of(&odd).await, Depth::default());
        for state in State::ALL {
            let mut expected = Depth::default();
            *expected.of_mut(state) = 2;
            assert_eq!(queue.depth_of(&filter(&[("state", state.name())])).await, expected);
        }
        queue.purge(true).await;
        assert_eq!((queue.depth().await, queue.depth_of(&even).await), (Depth::default(), Depth::default()));
    }
}

async fn q9_a_filter_that_no_message_passes_counts_nothing<S: Probe>(stage: &Stage<S>) {
    let queue = stage.queue(simple()).await;
    queue.put(flights()).await;
    assert_eq!(queue.depth_of(&filter(&[("origin", "SFO")])).await, Depth::default());
    assert_eq!(queue.depth_of(&filter(&[("nowhere", "JFK")])).await, Depth::default());
    // A value is whole, not a beginning; two pairs are not one of the same bytes.
    assert_eq!(queue.depth_of(&filter(&[("origin", "JF")])).await, Depth::default());
    assert_eq!(queue.depth_of(&filter(&[("carrier", "UAJFK"), ("origin", "J")])).await, Depth::default());
}
