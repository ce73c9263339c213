//! Queries at the server's limits.

use super::*;
use tallystone_indexer::{DepthQuery, Queues, StatsQuery, Trace, TraceQuery};

fn queue() -> QueueName {
    QueueName::parse("queue", "q").expect("a queue")
}

fn trace_of(id: &str, limit: usize, after: Option<(u64, u32)>) -> TraceQuery {
    TraceQuery { queue: queue(), id: MessageId::parse("id", id).expect("an id"), sequence: None, limit, after }
}

#[tokio::test]
async fn q20_without_any_index_every_result_is_empty() {
    let indices = TestIndices::new("empty").await;
    let store = indices.store();
    assert_eq!(store.trace(&trace_of("m", 10, None)).await, Ok(Trace::default()));
    assert_eq!(all(&store).await, []);
    assert_eq!(store.depth(&DepthQuery::of(Queues::One(queue()))).await, Ok([0; 6]));
    let query = StatsQuery { queue: queue(), from_ms: NOON_MS, to_ms: NOON_MS + 25, interval_ms: Some(10) };
    let activities = store.stats(&query).await.expect("a response");
    let spans: Vec<_> = activities.iter().map(|activity| (activity.from_ms as u64, activity.to_ms as u64)).collect();
    let at = |from, to| (NOON_MS + from, NOON_MS + to);
    assert_eq!(spans, [at(0, 25), at(0, 10), at(10, 20), at(20, 25)]);
    assert!(activities.iter().all(|activity| activity.states.is_empty() && activity.reasons.is_empty()));
}

#[tokio::test]
async fn q20_queries_succeed_while_new_days_begin() {
    let indices = TestIndices::new("midnight").await;
    let (writer, reader) = (indices.store(), indices.store());
    let write = async {
        for day in 0..15 {
            let at_ms = NOON_MS + day * DAY_MS;
            record(&writer, &[changed(event("m", 1, day as u32 + 1), |event| event.at_ms = at_ms)]).await;
        }
    };
    let query = StatsQuery { queue: queue(), from_ms: NOON_MS, to_ms: NOON_MS + DAY_MS, interval_ms: None };
    let (trace, payloads) = (trace_of("m", 100, None), trace_of("none", 1, None));
    let query_all = async {
        loop {
            reader.trace(&trace).await.expect("a trace");
            reader.trace(&payloads).await.expect("no trace");
            reader.stats(&query).await.expect("a response");
            reader.watermark().await.expect("none");
        }
    };
    tokio::select! {
        () = write => {}
        () = query_all => {}
    }
    writer.advance(ONLY, NOON_MS + 15 * DAY_MS).await.expect("visible");
    assert_eq!(reader.trace(&trace).await.expect("a trace").transitions.len(), 15);
    indices.remove().await;
}

#[tokio::test]
async fn q20_paging_finds_more_than_the_servers_limit() {
    let indices = TestIndices::new("deep").await;
    let store = indices.store();
    let events: Vec<Recorded> = (1..=12_000).map(|n| event(&format!("m{n}"), n, 1)).collect();
    record(&store, &events).await;
    let versions: Vec<Recorded> = (1..=12_000).map(|version| event("long", 20_000, version)).collect();
    record(&store, &versions).await;
    store.advance(ONLY, NOON_MS + DAY_MS).await.expect("visible");
    let query = SearchQuery { limit: 20_000, ..SearchQuery::default() };
    let found = store.search(&query).await.expect("a response");
    let sequences: Vec<u64> = found.iter().map(|message| message.sequence).collect();
    assert!(sequences.iter().copied().eq([20_000].into_iter().chain((1..=12_000).rev())), "in order, each once");
    let mut after = None;
    for (limit, begin, end, more) in
        [(10_000, 1, 10_000, true), (1_999, 10_001, 11_999, true), (9, 12_000, 12_000, false)]
    {
        let trace = store.trace(&trace_of("long", limit, after)).await.expect("a response");
        assert!(trace.transitions.iter().map(|transition| transition.version).eq(begin..=end), "{limit}");
        assert_eq!(trace.more, more, "{limit}");
        assert_eq!(trace.message.expect("the message").version, 12_000);
        after = trace.transitions.last().map(|transition| (transition.sequence, transition.version));
    }
    indices.remove().await;
}

#[tokio::test]
async fn q20_a_thousand_intervals_of_every_state_are_returned() {
    let indices = TestIndices::new("stats").await;
    let store = indices.store();
    // Every second one message enters each state, and one leaves it after one to six seconds.
    let mut events = Vec::new();
    for second in 0..1_000 {
        for (number, state) in State::ALL.into_iter().enumerate() {
            let sequence = second * 6 + number as u64 + 1;
            let next = State::ALL[(number + 1) % 6];
            events.push(changed(event(&format!("m{sequence}"), sequence, 2), |event| {
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
    let activities = store.stats(&query).await.expect("a response");
    assert_eq!(activities.len(), 1_001);
    for (interval, activity) in activities.iter().enumerate() {
        let count = if interval == 0 { 1_000 } else { 1 };
        assert_eq!(activity.states.len(), 6, "{interval}");
        for (number, state) in activity.states.iter().enumerate() {
            assert_eq!((state.state, state.entered, state.left), (number as i32 + 1, count, count), "{interval}");
            let spent_ms = (number as i64 + 1) * 1_000;
            assert_eq!(state.max_ms, spent_ms, "{interval}");
            for percentile in [state.p50_ms, state.p90_ms, state.p99_ms] {
                assert!((percentile - spent_ms).abs() * 100 <= spent_ms, "{percentile} for {spent_ms}");
            }
        }
        let reasons: Vec<_> = activity.reasons.iter().map(|reason| (reason.reason.as_str(), reason.count)).collect();
        assert_eq!(reasons, [("reason 0", 2 * count), ("reason 1", 2 * count), ("reason 2", 2 * count)], "{interval}");
    }
    indices.remove().await;
}

#[tokio::test]
async fn q20_hostile_text_finds_only_itself() {
    let indices = TestIndices::new("hostile").await;
    let store = indices.store();
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
        .map(|(n, text)| changed(event(&format!("m{n}"), n, 1), |event| event.last_reason = text.clone()))
        .collect();
    record(&store, &recorded).await;
    store.advance(ONLY, NOON_MS).await.expect("visible");
    let found = async |text: &str| {
        let query = SearchQuery { reason_contains: text.to_owned(), limit: 100, ..SearchQuery::default() };
        store.search(&query).await.expect("a response").into_iter().map(|message| message.reason).collect::<Vec<_>>()
    };
    for text in &texts {
        let mut expected: Vec<_> = texts.iter().filter(|other| other.contains(text.as_str())).cloned().collect();
        expected.reverse();
        assert_eq!(found(text).await, expected, "{text}");
    }
    assert_eq!(found("PLAIN É").await, ["plain É"], "ASCII in either case");
    assert_eq!(found("plain é").await, Vec::<String>::new(), "other characters match exactly");
    indices.remove().await;
}
