//! The retention.

use super::*;

#[tokio::test]
async fn q19_transitions_are_dropped_by_day_and_gone_messages_one_by_one() {
    let indices = TestIndices::new("prune").await;
    let store = Elastic::new(ElasticOptions { retention_ms: 2 * DAY_MS, ..indices.options() }).expect("good options");
    let on_day = |day: u64, sequence: u64| {
        changed(event(&format!("m{sequence}"), sequence, 1), |event| {
            event.at_ms += day * DAY_MS;
            event.enqueued_at_ms = event.at_ms;
        })
    };
    let gone = |recorded: Recorded| {
        changed(recorded, |event| {
            (event.from, event.to, event.by, event.version) = (Some(State::Completed), None, Cause::Collect, 9);
        })
    };
    record(&store, &[on_day(0, 1), on_day(1, 2), on_day(2, 3), gone(on_day(0, 4)), gone(on_day(1, 5))]).await;
    // At noon two days later the end of the first day is younger than the retention, and its noon exactly as old.
    let now_ms = NOON_MS + 2 * DAY_MS;
    let left = async |now_ms: u64| {
        while store.prune(now_ms).await.expect("pruned") {}
        let documents = indices.documents().await;
        let short = |(index, id, _): &(String, String, String)| format!("{}:{id}", &index[indices.prefix.len() + 1..]);
        documents.iter().map(short).collect::<Vec<_>>().join(" ")
    };
    let days = "historic-2026.11.21:q/0/2/1 historic-2026.11.21:q/0/5/9 historic-2026.11.22:q/0/3/1";
    let first = "historic-2026.11.20:q/0/1/1 historic-2026.11.20:q/0/4/9";
    let messages = "current:q/0/1 current:q/0/2 current:q/0/3";
    assert_eq!(left(now_ms).await, format!("{messages} current:q/0/4 current:q/0/5 {first} {days}"));
    assert_eq!(left(now_ms + 1).await, format!("{messages} current:q/0/5 {first} {days}"));
    assert_eq!(left(now_ms + DAY_MS / 2 - 1).await, format!("{messages} current:q/0/5 {first} {days}"));
    assert_eq!(left(now_ms + DAY_MS / 2).await, format!("{messages} current:q/0/5 {days}"), "at midnight");
    let all_gone = left(now_ms + 9 * DAY_MS).await;
    assert_eq!(all_gone, messages, "messages that are not gone are kept");
    indices.remove().await;
}

#[tokio::test]
async fn q19_pruning_runs_in_steps_and_accepts_missing_indices() {
    let indices = TestIndices::new("steps").await;
    let store = Elastic::new(ElasticOptions { retention_ms: 0, ..indices.options() }).expect("good options");
    assert_eq!(store.prune(NOON_MS).await, Ok(false), "no index exists");
    let gone = |n: u64| changed(event(&format!("m{n}"), n, 1), |event| event.to = None);
    let events: Vec<Recorded> = (1..=4_500).map(gone).collect();
    record(&store, &events).await;
    store.advance(ONLY, NOON_MS).await.expect("visible");
    let mut steps = 1;
    while store.prune(NOON_MS + DAY_MS).await.expect("pruned") {
        steps += 1;
    }
    assert_eq!((steps, indices.documents().await.len()), (3, 0));
    indices.remove().await;
}
