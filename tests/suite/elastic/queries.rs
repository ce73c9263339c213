//! Questions at the server's bounds.

use super::*;
use tallystone_indexer::{DepthQuery, StatsQuery, Trace, TraceQuery};

fn queue() -> QueueName {
    QueueName::parse("queue", "q").expect("a queue")
}

fn trace_of(id: &str, limit: usize, after: Option<(u64, u32)>) -> TraceQuery {
    TraceQuery { queue: queue(), id: MessageId::parse("id", id).expect("an id"), sequence: None, limit, after }
}

#[tokio::test]
async fn q20_without_any_index_every_answer_is_empty() {
    let place = Place::new("empty").await;
    let store = place.store();
    assert_eq!(store.trace(&trace_of("m", 10, None)).await, Ok(Trace::default()));
    assert_eq!(all(&store).await, []);
    assert_eq!(store.depth(&DepthQuery { queue: queue(), metadata: Default::default() }).await, Ok([0; 6]));
    let query = StatsQuery { queue: queue(), from_ms: NOON_MS, to_ms: NOON_MS + 25, interval_ms: Some(10) };
    let activities = store.stats(&query).await.expect("an answer");
    let spans: Vec<_> = activities.iter().map(|activity| (activity.from_ms as u64, activity.to_ms as u64)).collect();
    let at = |from, to| (NOON_MS + from, NOON_MS + to);
    assert_eq!(spans, [at(0, 25), at(0, 10), at(10, 20), at(20, 25)]);
    assert!(activities.iter().all(|activity| activity.states.is_empty() && activity.reasons.is_empty()));
}

#[tokio::test]
async fn q20_questions_are_answered_while_new_days_begin() {
    let place = Place::new("midnight").await;
    let (writer, reader) = (place.store(), place.store());
    let write = async {
        for day in 0..15 {
            let at_ms = NOON_MS + day * DAY_MS;
            record(&writer, &[but(event("m", 1, day as u32 + 1), |event| event.at_ms = at_ms)]).await;
        }
    };
    let query = StatsQuery { queue: queue(), from_ms: NOON_MS, to_ms: NOON_MS + DAY_MS, interval_ms: None };
    let (trace, payloads) = (trace_of("m", 100, None), trace_of("none", 1, None));
    let ask = async {
        loop {
            reader.trace(&trace).await.expect("a trace");
            reader.trace(&payloads).await.expect("no trace");
            reader.stats(&query).await.expect("an answer");
            reader.watermark().await.expect("none");
        }
    };
    tokio::select! {
        () = write => {}
        () = ask => {}
    }
    writer.advance(ONLY, NOON_MS + 15 * DAY_MS).await.expect("visible");
    assert_eq!(reader.trace(&trace).await.expect("a trace").transitions.len(), 15);
    place.leave().await;
}

#[tokio::test]
async fn q20_more_than_the_servers_window_is_found_by_paging() {
    let place = Place::new("deep").await;
    let store = place.store();
    let events: Vec<Recorded> = (1..=12_000).map(|n| event(&format!("m{n}"), n, 1)).collect();
    record(&store, &events).await;
    let versions: Vec<Recorded> = (1..=12_000).map(|version| event("long", 20_000, version)).collect();
    record(&store, &versions).await;
    store.advance(ONLY, NOON_MS + DAY_MS).await.expect("visible");
    let query = SearchQuery { limit: 20_000, ..SearchQuery::default() };
    let found = store.search(&query).await.expect("an answer");
    let sequences: Vec<u64> = found.iter().map(|message| message.sequence).collect();
    assert!(sequences.iter().copied().eq([20_000].into_iter().chain((1..=12_000).rev())), "in order, each once");
    let mut after = None;
    for (limit, begin, end, more) in
        [(10_000, 1, 10_000, true), (1_999, 10_001, 11_999, true), (9, 12_000, 12_000, false)]
    {
        let trace = store.trace(&trace_of("long", limit, after)).await.expect("an answer");
        assert!(trace.transitions.iter().map(|transition| transition.version).eq(begin..=end), "{limit}");
        assert_eq!(trace.more, more, "{limit}");
        assert_eq!(trace.message.expect("the message").version, 12_000);
        after = trace.transitions.last().map(|transition| (transition.sequence, transition.version));
    }
    place.leave().await;
}

#[tokio::test]
async fn q20_a_thousand_intervals_of_every_state_are_answered() {
    let place = Place::new("stats").await;
    let store = place.store();
    // Every second a message comes into each state and one leaves it, after one to six seconds.
    let mut events = Vec::new();
    for second in 0..1_000 {
        for (number, state) in State::ALL.into_iter().enumerate() {
            let sequence = second * 6 + number as u64 + 1;
            let next = State::ALL[(number + 1) % 6];
            events.push(but(event(&format!("m{sequence}"), sequence, 2), |event| {
                (event.from, event.to, event.by) = (Some(state), Some(next), Cause::Release);
                event.at_ms = NOON_MS + second * 1_000;
                event.from_since_ms = event.at_ms - (number as u64 + 1) * 1_000;
                event.reason = format!("reason {}", number % 3);
            }));
        }
    }
    record(&store, &events).await;
    let to_ms = NOON_MS + 1_000_000;
    store.advance(ONLY, to_ms).await.expect("visible");
    let query = StatsQuery { queue: queue(), from_ms: NOON_MS, to_ms, interval_ms: Some(1_000) };
    let activities = store.stats(&query).await.expect("an answer");
    assert_eq!(activities.len(), 1_001);
    for (place, activity) in activities.iter().enumerate() {
        let count = if place == 0 { 1_000 } else { 1 };
        assert_eq!(activity.states.len(), 6, "{place}");
        for (number, state) in activity.states.iter().enumerate() {
            assert_eq!((state.state, state.entered, state.left), (number as i32 + 1, count, count), "{place}");
            let spent_ms = (number as i64 + 1) * 1_000;
            assert_eq!(state.max_ms, spent_ms, "{place}");
            for percentile in [state.p50_ms, state.p90_ms, state.p99_ms] {
                assert!((percentile - spent_ms).abs() * 100 <= spent_ms, "{percentile} for {spent_ms}");
            }
        }
        let reasons: Vec<_> = activity.reasons.iter().map(|reason| (reason.reason.as_str(), reason.count)).collect();
        assert_eq!(reasons, [("reason 0", 2 * count), ("reason 1", 2 * count), ("reason 2", 2 * count)], "{place}");
    }
    place.leave().await;
}

#[tokio::test]
async fn q20_hostile_text_finds_only_itself() {
    let place = Place::new("hostile").await;
    let store = place.store();
    let texts = [
        "*".repeat(255),
        "?*?*\\".repeat(51),
        "a".repeat(255),
        "aAé".repeat(63),
        r#"{"match_all":{}} OR 1=1"#.to_owned(),
        "\\".to_owned(),
        "plain É".to_owned(),
    ];
    let recorded: Vec<Recorded> = (1..)
        .zip(&texts)
        .map(|(n, text)| but(event(&format!("m{n}"), n, 1), |event| event.last_reason = text.clone()))
        .collect();
    record(&store, &recorded).await;
    store.advance(ONLY, NOON_MS).await.expect("visible");
    let found = async |text: &str| {
        let query = SearchQuery { reason_contains: text.to_owned(), limit: 100, ..SearchQuery::default() };
        store.search(&query).await.expect("an answer").into_iter().map(|message| message.reason).collect::<Vec<_>>()
    };
    for text in &texts {
        let mut expected: Vec<_> = texts.iter().filter(|other| other.contains(text.as_str())).cloned().collect();
        expected.reverse();
        assert_eq!(found(text).await, expected, "{text}");
    }
    assert_eq!(found("PLAIN É").await, ["plain É"], "ASCII in either case");
    assert_eq!(found("plain é").await, Vec::<String>::new(), "all else as it stands");
    place.leave().await;
}
