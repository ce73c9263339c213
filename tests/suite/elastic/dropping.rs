//! Dropping an index, interrupted at every step, and next to other programs.

use super::*;
use serde_json::json;

/// The first day is past its retention, but not for so long that its messages are removed one by one.
const LATER_MS: u64 = NOON_MS + 2 * DAY_MS;
const CLAIMED_MS: u64 = 3 * 60_000;

fn store(indices: &TestIndices) -> Elastic {
    Elastic::new(ElasticOptions { retention_ms: DAY_MS, ..indices.options() }).expect("good options")
}

fn gone(sequence: u64) -> Recorded {
    changed(event(&format!("m{sequence}"), sequence, 1), |event| {
        (event.to, event.payload) = (None, Some(vec![7].into()));
    })
}

/// What a program has done that was killed while it dropped the index of the first day's messages.
const STEPS: [&str; 5] = ["claimed", "blocked", "payloads deleted", "messages deleted", "released"];

async fn take(step: &str, indices: &TestIndices) {
    let (prefix, day) = (&indices.prefix, "2026.11.20");
    let claim = format!("{prefix}-hours/_doc/drop-{prefix}-current-{day}");
    let call = async |method, path: String, body| indices.call(method, &path, body).await;
    match step {
        "claimed" => {
            let body = json!({ "kind": "drop", "from_ms": LATER_MS, "index": format!("{prefix}-current-{day}") });
            call(Method::Put, claim, Some(body)).await
        }
        "blocked" => call(Method::Put, format!("{prefix}-current-{day}/_block/write"), None).await,
        "payloads deleted" => call(Method::Delete, format!("{prefix}-payload-{day}"), None).await,
        "messages deleted" => call(Method::Delete, format!("{prefix}-current-{day}"), None).await,
        _ => call(Method::Delete, claim, None).await,
    };
}

#[tokio::test]
async fn q19_a_program_that_dies_while_it_drops_an_index_is_followed_by_another() {
    for died_after in 1..=STEPS.len() {
        let indices = TestIndices::new("died").await;
        record(&store(&indices), &[gone(1), gone(2)]).await;
        for step in &STEPS[..died_after] {
            take(step, &indices).await;
        }
        // While the claim may be that of a program that lives, the others leave the index alone. Their clocks may differ.
        let other = store(&indices);
        let remaining = indices.names().await.into_iter().filter(|name| name.starts_with("current")).count();
        let case = STEPS[died_after - 1];
        for seen_ms in [0, CLAIMED_MS - 1] {
            while other.prune(LATER_MS + CLAIMED_MS + seen_ms).await.expect("pruned") {}
            let names = indices.names().await;
            let found = names.iter().filter(|name| name.starts_with("current")).count();
            assert_eq!(found, remaining, "after {case}: {names:?}");
        }
        while other.prune(LATER_MS + 2 * CLAIMED_MS).await.expect("pruned") {}
        assert_eq!(indices.names().await, Vec::<String>::new(), "after {case}");
        // The event of a message that is still in its queue comes late: its hour has its index again, and keeps it.
        record(&other, &[event("late", 3, 1)]).await;
        while other.prune(LATER_MS + 9 * CLAIMED_MS).await.expect("pruned") {}
        record(&other, &[event("late", 3, 2)]).await;
        let kept: Vec<String> = indices.names().await.into_iter().filter(|name| name.starts_with("current")).collect();
        assert_eq!(kept, ["current-2026.11.20:q/0/3"], "after {case}");
        indices.remove().await;
    }
}

#[tokio::test]
async fn q19_an_index_with_a_live_message_is_unblocked_again() {
    let indices = TestIndices::new("unblocked").await;
    let store = store(&indices);
    record(&store, &[gone(1), event("live", 2, 1)]).await;
    take("claimed", &indices).await;
    take("blocked", &indices).await;
    assert!(store.record(&[event("live", 2, 2)]).await.is_err(), "it is blocked");
    for seen_ms in [0, CLAIMED_MS] {
        while store.prune(LATER_MS + seen_ms).await.expect("pruned") {}
    }
    record(&store, &[event("live", 2, 2)]).await;
    let kept: Vec<String> = indices.names().await.into_iter().filter(|name| name.starts_with("current")).collect();
    assert_eq!(kept, ["current-2026.11.20:q/0/1", "current-2026.11.20:q/0/2"]);
    indices.remove().await;
}

#[tokio::test]
async fn q19_no_event_is_lost_while_programs_drop_its_index() {
    for round in 0..amount(4, 40) {
        let indices = TestIndices::new("dropped").await;
        let (one, two, writer) = (store(&indices), store(&indices), store(&indices));
        record(&writer, &[gone(1), gone(2)]).await;
        let prune = async |store: &Elastic| {
            for step in 0..3 {
                // Another program may be between its steps.
                let _ = store.prune(LATER_MS + step * CLAIMED_MS / 8).await;
            }
        };
        let write = async {
            let polling = Polling::begin();
            for sequence in 10..14 {
                // A blocked index is unavailable for a moment.
                while writer.record(&[event(&format!("late{sequence}"), sequence, 1)]).await.is_err() {
                    polling.pause().await;
                }
            }
        };
        tokio::join!(prune(&one), prune(&two), write);
        while one.prune(LATER_MS + 2 * CLAIMED_MS).await.expect("pruned") {}
        one.advance(ONLY, NOON_MS).await.expect("visible");
        let mut live: Vec<String> = all(&one).await.into_iter().map(|message| message.id).collect();
        live.retain(|id| id.starts_with("late"));
        live.sort();
        assert_eq!(live, ["late10", "late11", "late12", "late13"], "round {round}");
        indices.remove().await;
    }
}
