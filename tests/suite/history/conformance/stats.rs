//! Statistics of a queue over a span of time: Q20.

use tallystone_model::State;
use tallystone_proto::history::v1::{Activity, StateActivity};
use tallystone_tests::{BEGIN_MS, HistoryFixture, HistoryUnderTest, events_of};

over_history_stores!(
    q20_statistics_count_entered_and_left,
    q20_percentiles_are_within_a_hundredth,
    q20_all_intervals_are_returned_and_the_last_may_be_shorter,
    q20_the_most_frequent_reasons_come_first,
    q20_a_span_without_events_has_no_states,
);

fn of(activity: &Activity, state: State) -> Option<&StateActivity> {
    activity.states.iter().find(|activity| activity.state == state as i32)
}

/// A percentile is within a hundredth.
fn assert_near(found_ms: i64, exact_ms: u64, what: &str) {
    let off = (found_ms as f64 / exact_ms as f64 - 1.0).abs();
    assert!(off <= 0.01, "{what} is {found_ms} ms, not {exact_ms} ms: off by {off:.4}");
}

/// Entered and left, by state.
fn counts(activity: &Activity) -> Vec<(State, u64, u64)> {
    let counts = activity.states.iter().map(|activity| {
        let state = State::from_code(activity.state as u8).expect("a state");
        (state, activity.entered, activity.left)
    });
    counts.collect()
}

async fn q20_statistics_count_entered_and_left<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    use State::*;
    let first = history.life("a").enqueued_for(5).after(10).shown().reprioritized(1).after(100).leased("w");
    let first = first.after(50).extended().after(50).completed().after(1_000).collected();
    let second = history.life("b").enqueued().after(3).leased("w").after(7).released("x").after(1).canceled("y");
    let elsewhere = tallystone_tests::Life::new(&history.another_queue(), "a").enqueued().leased("w").errored("z");
    history.record_and_show(&events_of(&[first, second, elsewhere])).await;
    let stats = history.stats(BEGIN_MS, BEGIN_MS + 10_000, None).await;
    let [whole] = stats.as_slice() else { panic!("only the whole span: {stats:?}") };
    assert_eq!((whole.from_ms, whole.to_ms), (BEGIN_MS as i64, BEGIN_MS as i64 + 10_000));
    let expected = [(Invisible, 1, 1), (Pending, 3, 3), (Running, 2, 2), (Completed, 1, 1), (Canceled, 1, 0)];
    assert_eq!(counts(whole), expected, "in the order of the states; a transition that keeps the state does not count");
    let pending = of(whole, Pending).expect("pending");
    assert_eq!(pending.entered_per_s, 0.3);
    assert_eq!(pending.max_ms, 100);
    assert_near(pending.p50_ms, 3, "the median of 1, 3 and 100 ms");
    assert_eq!(of(whole, Running).expect("running").max_ms, 100);
    let completed = of(whole, Completed).expect("completed");
    for found in [completed.p50_ms, completed.p90_ms, completed.p99_ms] {
        assert_near(found, 1_000, "of one message");
    }
    let canceled = of(whole, Canceled).expect("canceled");
    assert_eq!((canceled.p50_ms, canceled.p99_ms, canceled.max_ms), (0, 0, 0), "none has left");
    // The span includes its start and excludes its end.
    let part = history.stats(BEGIN_MS + 10, BEGIN_MS + 110, None).await;
    assert_eq!(counts(&part[0]), [(Invisible, 0, 1), (Pending, 2, 1), (Running, 0, 1), (Canceled, 1, 0)]);
}

async fn q20_percentiles_are_within_a_hundredth<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    // Over several orders of magnitude, as real waits are; in no order.
    const WAITS: u64 = 2_000;
    let wait_ms = |number: u64| (number * 1_237 % WAITS + 1).pow(2);
    let lives: Vec<_> = (0..WAITS)
        .map(|number| history.life(&format!("m{number}")).enqueued().after(wait_ms(number)).leased("w"))
        .collect();
    history.record_and_show(&events_of(&lives)).await;
    let stats = history.stats(BEGIN_MS, BEGIN_MS + 2 * WAITS.pow(2), None).await;
    let pending = of(&stats[0], State::Pending).expect("pending");
    assert_eq!((pending.entered, pending.left, pending.max_ms), (WAITS, WAITS, WAITS.pow(2) as i64));
    for (found, percent) in [(pending.p50_ms, 50), (pending.p90_ms, 90), (pending.p99_ms, 99)] {
        assert_near(found, (WAITS * percent / 100).pow(2), &format!("p{percent}"));
    }
}

async fn q20_all_intervals_are_returned_and_the_last_may_be_shorter<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let mut lives = Vec::new();
    // In the first interval, at both ends of the third, and in the last, which is shorter.
    for (number, at_ms) in [0, 999, 2_000, 2_999, 4_000, 4_499].into_iter().enumerate() {
        lives.push(history.life(&format!("m{number}")).at(BEGIN_MS + at_ms).enqueued().leased("w"));
    }
    lives.push(history.life("before").at(BEGIN_MS - 1).enqueued());
    lives.push(history.life("after").at(BEGIN_MS + 4_500).enqueued());
    history.record_and_show(&events_of(&lives)).await;
    let stats = history.stats(BEGIN_MS, BEGIN_MS + 4_500, Some(1_000)).await;
    let spans: Vec<_> =
        stats.iter().map(|part| (part.from_ms - BEGIN_MS as i64, part.to_ms - BEGIN_MS as i64)).collect();
    assert_eq!(spans, [(0, 4_500), (0, 1_000), (1_000, 2_000), (2_000, 3_000), (3_000, 4_000), (4_000, 4_500)]);
    let entered: Vec<_> = stats.iter().map(|part| of(part, State::Running).map_or(0, |state| state.entered)).collect();
    assert_eq!(entered, [6, 2, 0, 2, 0, 2]);
    assert_eq!((&stats[2].states[..], &stats[2].reasons[..]), (&[][..], &[][..]), "nothing happened then");
    let per_s = |part: &Activity| of(part, State::Running).expect("running").entered_per_s;
    assert_eq!((per_s(&stats[1]), per_s(&stats[5])), (2.0, 4.0), "the last is half a second");
    // A whole number of intervals, one that is longer than the span, and one of the same length.
    assert_eq!(history.stats(BEGIN_MS, BEGIN_MS + 4_000, Some(1_000)).await.len(), 1 + 4);
    for interval_ms in [4_500, 1_000_000] {
        let stats = history.stats(BEGIN_MS, BEGIN_MS + 4_500, Some(interval_ms)).await;
        assert_eq!(stats.len(), 2, "{interval_ms}");
        assert_eq!(stats[0], stats[1], "{interval_ms}");
    }
    // A span may begin anywhere.
    let odd = history.stats(BEGIN_MS + 999, BEGIN_MS + 2_001, Some(1_001)).await;
    let entered: Vec<_> = odd.iter().map(|part| of(part, State::Running).map_or(0, |state| state.entered)).collect();
    assert_eq!(entered, [2, 1, 1]);
}

async fn q20_the_most_frequent_reasons_come_first<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let mut lives = Vec::new();
    for number in 0..25_u64 {
        // Message n has its reason n / 2 + 1 times, so two reasons are equally frequent.
        let mut life = history.life(&format!("m{number}")).enqueued();
        for _ in 0..=number / 2 {
            life = life.after(1).leased("w").after(1).released(&format!("reason {number:02}"));
        }
        lives.push(life);
    }
    lives.push(history.life("quiet").enqueued().leased("w").released("").leased("w").expired().leased("w").completed());
    history.record_and_show(&events_of(&lives)).await;
    let stats = history.stats(BEGIN_MS, BEGIN_MS + 1_000, Some(1_000)).await;
    for activity in &stats {
        let found: Vec<_> = activity.reasons.iter().map(|found| (found.reason.as_str(), found.count)).collect();
        assert_eq!(found.len(), 20);
        assert_eq!(found[..4], [("reason 24", 13), ("reason 22", 12), ("reason 23", 12), ("reason 20", 11)]);
        assert_eq!(found[18..], [("reason 07", 4), ("reason 04", 3)]);
    }
    let of_quiet = history.stats(BEGIN_MS, BEGIN_MS + 1, None).await;
    let found: Vec<_> = of_quiet[0].reasons.iter().map(|found| (found.reason.as_str(), found.count)).collect();
    assert_eq!(found, [("lease expired", 1)], "a transition without a reason does not count");
}

async fn q20_a_span_without_events_has_no_states<S: HistoryUnderTest>(history: &HistoryFixture<S>) {
    let empty = |from_ms: u64, to_ms: u64| Activity {
        from_ms: from_ms as i64,
        to_ms: to_ms as i64,
        states: Vec::new(),
        reasons: Vec::new(),
    };
    let expected = [empty(5, 25), empty(5, 15), empty(15, 25)];
    assert_eq!(history.stats(5, 25, Some(10)).await, expected, "of a queue that never existed");
    history.record_and_show(&history.life("m").enqueued().events()).await;
    assert_eq!(history.stats(5, 25, Some(10)).await, expected);
}
