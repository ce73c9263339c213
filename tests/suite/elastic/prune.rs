//! The retention.

use super::*;
use serde_json::json;
use tallystone_indexer::{HistoryError, Rollover};

#[tokio::test]
async fn q19_days_are_dropped_and_gone_messages_next_to_others_one_by_one() {
    let indices = TestIndices::new("prune").await;
    let store = Elastic::new(ElasticOptions { retention_ms: 2 * DAY_MS, ..indices.options() }).expect("good options");
    let on_day = |day: u64, sequence: u64| {
        changed(event(&format!("m{sequence}"), sequence, 1), |event| {
            event.at_ms += day * DAY_MS;
            event.enqueued_at_ms = event.at_ms;
            event.payload = Some(vec![7].into());
        })
    };
    let gone = |recorded: Recorded| {
        changed(recorded, |event| {
            (event.from, event.to, event.by, event.version) = (Some(State::Completed), None, Cause::Collect, 9);
        })
    };
    // Of the first day one message is still in its queue, of the second none, of the third one.
    record(&store, &[on_day(0, 1), gone(on_day(0, 4)), gone(on_day(1, 2)), gone(on_day(1, 5)), on_day(2, 3)]).await;
    let left = async |now_ms: u64| {
        while store.prune(now_ms).await.expect("pruned") {}
        let spans = ["current-", "payload-", "historic-2026.11."];
        let short = |name: String| spans.iter().fold(name, |name, span| name.replacen(span, &span[..1], 1));
        let names: Vec<String> =
            indices.names().await.into_iter().map(|name| short(name).replace("2026.11.", "")).collect();
        names.join(" ")
    };
    let both = |day: u8, one: u8, other: u8| format!("c{day}:q/0/{one} c{day}:q/0/{other}");
    let midnight = NOON_MS + DAY_MS / 2 + 2 * DAY_MS;
    let all = left(midnight - 1).await;
    for part in
        [both(20, 1, 4), both(21, 2, 5), "h20:q/0/1/1 h20:q/0/4/9 h21:q/0/2/9 h21:q/0/5/9 h22:q/0/3/1".to_owned()]
    {
        assert!(all.contains(&part), "{all}: {part}");
    }
    let first = left(midnight).await;
    assert!(first.contains(&both(20, 1, 4)) && first.contains(&both(21, 2, 5)) && !first.contains("h20"), "{first}");
    // The second day is dropped as a whole; of the first, what is gone.
    let second = left(midnight + DAY_MS).await;
    assert_eq!(second, "c20:q/0/1 c22:q/0/3 h22:q/0/3/1 p20:q/0/1 p22:q/0/3");
    assert!(!indices.indices().await.iter().any(|index| index.contains("2026.11.21")), "{:?}", indices.indices().await);
    let third = left(midnight + 9 * DAY_MS).await;
    assert_eq!(third, "c20:q/0/1 c22:q/0/3 p20:q/0/1 p22:q/0/3", "messages that are not gone are kept");
    indices.remove().await;
}

#[tokio::test]
async fn q19_pruning_runs_in_steps_and_accepts_missing_indices() {
    let indices = TestIndices::new("steps").await;
    let store = Elastic::new(ElasticOptions { retention_ms: 0, ..indices.options() }).expect("good options");
    assert_eq!(store.prune(NOON_MS).await, Ok(false), "no index exists");
    let gone = |n: u64| changed(event(&format!("m{n}"), n, 1), |event| event.to = None);
    let mut events: Vec<Recorded> = (1..=4_500).map(gone).collect();
    events.push(event("live", 5_000, 1));
    record(&store, &events).await;
    store.advance(ONLY, NOON_MS).await.expect("visible");
    let mut steps = 1;
    while store.prune(NOON_MS + 2 * DAY_MS).await.expect("pruned") {
        steps += 1;
    }
    assert_eq!((steps, indices.names().await), (3, vec!["current-2026.11.20:q/0/5000".to_owned()]));
    indices.remove().await;
}

#[tokio::test]
async fn q19_many_old_days_are_dropped_in_steps() {
    let indices = TestIndices::new("many").await;
    let store = Elastic::new(ElasticOptions { retention_ms: DAY_MS, ..indices.options() }).expect("good options");
    let gone = |day: u64| {
        changed(event(&format!("m{day}"), day, 1), |event| {
            event.at_ms += day * DAY_MS;
            (event.to, event.enqueued_at_ms) = (None, event.at_ms);
        })
    };
    // Each has three new indices.
    for day in 1..=25 {
        record(&store, &[gone(day)]).await;
    }
    assert_eq!(store.prune(NOON_MS + 40 * DAY_MS).await, Ok(true), "20 of each kind");
    assert_eq!(store.prune(NOON_MS + 40 * DAY_MS).await, Ok(false));
    assert_eq!(indices.names().await, Vec::<String>::new());
    indices.remove().await;
}

#[tokio::test]
async fn q19_an_index_that_cannot_be_read_stops_neither_writes_nor_the_retention() {
    let indices = TestIndices::new("unread").await;
    let store = Elastic::new(ElasticOptions { retention_ms: DAY_MS, ..indices.options() }).expect("good options");
    store.prepare().await.expect("templates");
    // No node may have their shards.
    for day in ["historic-2026.11.18", "current-2026.11.18", "historic-2026.11.19", "current-2026.11.19"] {
        let settings = json!({ "settings": { "index.routing.allocation.require._name": "none" } });
        let path = format!("{}-{day}?wait_for_active_shards=0", indices.prefix);
        indices.call(Method::Put, &path, Some(settings)).await;
    }
    let begins = [DAY_MS, 2 * DAY_MS];
    let gone = begins.map(|later_ms| {
        changed(event(&format!("m{later_ms}"), later_ms, 1), |event| {
            event.at_ms += later_ms;
            (event.to, event.enqueued_at_ms) = (None, event.at_ms);
        })
    });
    record(&store, &gone).await;
    let spans = async || {
        let short = |name: String| name[indices.prefix.len() + 1..].replace("2026.11.", "");
        let names = indices.indices().await.into_iter().map(short).filter(|name| name.contains('-'));
        names.collect::<Vec<String>>().join(" ")
    };
    assert_eq!(
        spans().await,
        "current-18 current-19 current-21 current-22 historic-18 historic-19 historic-21 historic-22"
    );
    let pruned = store.prune(NOON_MS + 2 * DAY_MS + DAY_MS / 2).await;
    assert!(matches!(pruned, Err(HistoryError::Unavailable(_))), "{pruned:?}");
    assert_eq!(spans().await, "current-18 current-19 current-22 historic-22");
    indices.remove().await;
}

#[tokio::test]
async fn q19_a_closed_index_is_dropped_when_its_last_hour_is_past() {
    let indices = TestIndices::new("closed-past").await;
    let store = |days| {
        let rollover = Rollover { days, ..Rollover::default() };
        Elastic::new(ElasticOptions { retention_ms: DAY_MS, rollover, ..indices.options() }).expect("good options")
    };
    record(&store(3), &[event("m", 1, 1), changed(event("m", 1, 2), |event| event.at_ms += 2 * DAY_MS)]).await;
    let day = format!("{}-historic-2026.11.20", indices.prefix);
    indices.call(Method::Post, &format!("{day}/_close"), None).await;
    let hour_end_ms = NOON_MS + 3_600_000 + 2 * DAY_MS;
    for (now_ms, is_there) in [(hour_end_ms + DAY_MS - 1, true), (hour_end_ms + DAY_MS, false)] {
        while store(1).prune(now_ms).await.expect("pruned") {}
        assert_eq!(indices.indices().await.contains(&day), is_there);
    }
    indices.remove().await;
}
