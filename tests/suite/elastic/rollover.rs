//! Indices that are followed by new ones, while every event stays in its own.

use super::*;
use rand::seq::SliceRandom;
use std::collections::BTreeSet;
use tallystone_indexer::{DepthQuery, Queues, Rollover, TraceQuery};

const HOUR_MS: u64 = 3_600_000;

fn store(indices: &TestIndices, rollover: Rollover) -> Elastic {
    Elastic::new(ElasticOptions { rollover, ..indices.options() }).expect("good options")
}

fn of_documents(documents_max: u64) -> Rollover {
    Rollover { documents_max, ..Rollover::default() }
}

/// The enqueue of a message, and its lease, some hours after noon.
fn in_hour(hour: u64, sequence: u64) -> [Recorded; 2] {
    [1, 2].map(|version| {
        changed(event(&format!("m{sequence}"), sequence, version), |event| {
            event.at_ms += hour * HOUR_MS;
            event.enqueued_at_ms += hour * HOUR_MS;
            event.payload = (version == 1).then(|| vec![7].into());
        })
    })
}

/// The spans of the indices of one kind.
async fn spans(indices: &TestIndices, kind: &str) -> String {
    let begin = format!("{}-{kind}-", indices.prefix);
    let names = indices.indices().await;
    names.iter().filter_map(|name| name.strip_prefix(&begin)).collect::<Vec<_>>().join(" ")
}

/// Ids that more than one index has.
fn twice(documents: &[(String, String, String)], prefix: &str) -> Vec<String> {
    let kind = |index: &str| index[prefix.len() + 1..].split('-').next().unwrap_or_default().to_owned();
    let mut seen = BTreeSet::new();
    let repeated = documents.iter().filter(|(index, id, _)| !seen.insert((kind(index), id.clone())));
    repeated.map(|(index, id, _)| format!("{index}:{id}")).collect()
}

#[tokio::test]
async fn q19_an_index_that_is_full_is_followed_by_another_and_repeats_stay_in_theirs() {
    let indices = TestIndices::new("full").await;
    let small = store(&indices, of_documents(10));
    let hours: Vec<Vec<Recorded>> =
        (0..4).map(|hour| (0..6).flat_map(|n| in_hour(hour, hour * 100 + n)).collect()).collect();
    for events in &hours {
        record(&small, events).await;
    }
    // Ten transitions after five messages; ten messages after two hours.
    assert_eq!(spans(&indices, "historic").await, "2026.11.20 2026.11.20-13 2026.11.20-14 2026.11.20-15");
    assert_eq!(spans(&indices, "current").await, "2026.11.20 2026.11.20-14");
    assert_eq!(spans(&indices, "payload").await, "2026.11.20 2026.11.20-14");
    let once = indices.documents().await;
    assert_eq!((once.len(), twice(&once, &indices.prefix)), (24 * 4, vec![]));

    // Programs with other settings, and events in another order, that were late or are repeated.
    let mut again: Vec<Recorded> = hours.concat();
    again.shuffle(&mut rand::rng());
    for rollover in [of_documents(1), Rollover { days: 31, ..Rollover::default() }, Rollover::default()] {
        record(&store(&indices, rollover), &again).await;
    }
    assert_eq!(indices.documents().await, once);

    // Queries find everything, whichever index has it.
    let reader = indices.store();
    reader.advance(ONLY, NOON_MS).await.expect("visible");
    let messages = all(&reader).await;
    assert_eq!(messages.len(), 24);
    assert!(messages.is_sorted_by_key(|message| -message.enqueued_at_ms));
    let queue = hours[0][0].shard.queue.clone();
    let depth = reader.depth(&DepthQuery::of(Queues::One(queue.clone()))).await.expect("a depth");
    assert_eq!(depth, [0, 0, 24, 0, 0, 0]);
    for recorded in again.iter().filter(|recorded| recorded.event.version == 2) {
        let id = recorded.event.id.clone();
        let query = TraceQuery { queue: queue.clone(), id, sequence: None, limit: 10, after: None };
        let trace = reader.trace(&query).await.expect("a trace");
        assert_eq!(
            (trace.transitions.len(), trace.message.and_then(|message| message.payload)),
            (2, Some(vec![7].into()))
        );
    }
    indices.remove().await;
}

#[tokio::test]
async fn q19_an_index_ends_by_age_or_by_bytes() {
    let indices = TestIndices::new("age").await;
    let days = store(&indices, Rollover { days: 3, ..Rollover::default() });
    for day in 0..7 {
        record(&days, &in_hour(day * 24, day)).await;
    }
    assert_eq!(spans(&indices, "historic").await, "2026.11.20 2026.11.23 2026.11.26");
    assert_eq!(spans(&indices, "current").await, "2026.11.20 2026.11.23 2026.11.26");
    // The settings of a new hour are those of the program that needs it first.
    let bytes = store(&indices, Rollover { days: 3, bytes_max: 1, ..Rollover::default() });
    record(&bytes, &in_hour(6 * 24 + 1, 100)).await;
    assert_eq!(spans(&indices, "historic").await, "2026.11.20 2026.11.23 2026.11.26 2026.11.26-13");
    indices.remove().await;
}

#[tokio::test]
async fn q19_programs_that_roll_over_at_once_agree() {
    for round in 0..amount(2, 20) {
        let indices = TestIndices::new("race").await;
        let events: Vec<Recorded> =
            (0..8).flat_map(|hour| (0..3).flat_map(move |n| in_hour(hour, hour * 10 + n))).collect();
        // Each program writes all events in its own order, as after a rebalance; each index is full at once.
        let programs = (0..3).map(|_| {
            let (program, mut events) = (store(&indices, of_documents(1)), events.clone());
            events.shuffle(&mut rand::rng());
            async move {
                for some in events.chunks(5) {
                    record(&program, some).await;
                }
            }
        });
        futures::future::join_all(programs).await;
        let documents = indices.documents().await;
        assert_eq!(twice(&documents, &indices.prefix), Vec::<String>::new(), "round {round}");
        assert_eq!(documents.len(), 24 * 4, "round {round}");
        indices.remove().await;
    }
}

#[tokio::test]
async fn q19_a_program_that_dies_between_choosing_an_index_and_writing_to_it_leaves_the_choice() {
    let indices = TestIndices::new("chosen").await;
    record(&store(&indices, of_documents(1)), &in_hour(0, 1)).await;
    // As the program stored it that died before its first write of this hour.
    let hour = NOON_MS / HOUR_MS + 1;
    let chosen = serde_json::json!({ "kind": "historic", "from_ms": hour * HOUR_MS,
        "index": format!("{}-historic-2026.11.20-13", indices.prefix) });
    indices.call(Method::Put, &format!("{}-hours/_create/historic-{hour}", indices.prefix), Some(chosen)).await;
    let [enqueued, leased] = in_hour(1, 2);
    record(&indices.store(), &[enqueued]).await;
    record(&store(&indices, of_documents(1)), &[leased]).await;
    assert_eq!(spans(&indices, "historic").await, "2026.11.20 2026.11.20-13");
    assert_eq!(twice(&indices.documents().await, &indices.prefix), Vec::<String>::new());
    indices.remove().await;
}

#[tokio::test]
async fn q19_a_batch_of_many_days_fills_one_index() {
    let indices = TestIndices::new("batch").await;
    let backlog: Vec<Recorded> = (0..7).flat_map(|day| in_hour(day * 24, day)).collect();
    record(&store(&indices, Rollover { days: 7, ..Rollover::default() }), &backlog).await;
    assert_eq!([spans(&indices, "historic").await, spans(&indices, "current").await], ["2026.11.20", "2026.11.20"]);
    indices.remove().await;
}

#[tokio::test]
async fn q19_lost_choices_are_found_again_by_the_documents() {
    let indices = TestIndices::new("lost").await;
    let events: Vec<Recorded> = (0..3).flat_map(|hour| in_hour(hour, hour)).collect();
    record(&store(&indices, of_documents(100)), &events).await;
    let once = indices.documents().await;
    indices.call(Method::Delete, &format!("{}-hours", indices.prefix), None).await;
    record(&store(&indices, of_documents(1)), &events).await;
    assert_eq!(indices.documents().await, once);
    indices.remove().await;
}
