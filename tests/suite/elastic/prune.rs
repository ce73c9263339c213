//! Retention.

use super::*;

#[tokio::test]
async fn q19_days_are_dropped_whole_and_messages_that_are_gone_one_by_one() {
    let place = Place::new("prune").await;
    let store = Elastic::new(ElasticOptions { retention_ms: 2 * DAY_MS, ..place.options() }).expect("good options");
    let on_day = |day: u64, sequence: u64| {
        but(event(&format!("m{sequence}"), sequence, 1), |event| {
            event.at_ms += day * DAY_MS;
            event.enqueued_at_ms = event.at_ms;
        })
    };
    let gone = |recorded: Recorded| {
        but(recorded, |event| {
            (event.from, event.to, event.by, event.version) = (Some(State::Completed), None, Cause::Collect, 9);
        })
    };
    record(&store, &[on_day(0, 1), on_day(1, 2), on_day(2, 3), gone(on_day(0, 4)), gone(on_day(1, 5))]).await;
    // The second noon, two days later: the first day is over by less than the retention, its noon by just as much.
    let now_ms = NOON_MS + 2 * DAY_MS;
    let left = async |now_ms: u64| {
        while store.prune(now_ms).await.expect("pruned") {}
        let documents = place.documents().await;
        let short = |(index, id, _): &(String, String, String)| format!("{}:{id}", &index[place.prefix.len() + 1..]);
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
    assert_eq!(all_gone, messages, "what is not gone is kept");
    place.leave().await;
}

#[tokio::test]
async fn q19_pruning_goes_in_steps_and_finds_nothing_where_nothing_is() {
    let place = Place::new("steps").await;
    let store = Elastic::new(ElasticOptions { retention_ms: 0, ..place.options() }).expect("good options");
    assert_eq!(store.prune(NOON_MS).await, Ok(false), "there is no index");
    let gone = |n: u64| but(event(&format!("m{n}"), n, 1), |event| event.to = None);
    let events: Vec<Recorded> = (1..=4_500).map(gone).collect();
    record(&store, &events).await;
    store.advance(ONLY, NOON_MS).await.expect("visible");
    let mut steps = 1;
    while store.prune(NOON_MS + DAY_MS).await.expect("pruned") {
        steps += 1;
    }
    assert_eq!((steps, place.documents().await.len()), (3, 0));
    place.leave().await;
}
