//! Writes: repeated, reordered, rejected, too large.

use super::*;
use rand::seq::SliceRandom;
use tallystone_indexer::{Rejected, TraceQuery};
use tallystone_local::{PrivateElasticsearch, PrivateElasticsearchOptions};

fn some_events() -> Vec<Recorded> {
    (1..=20).flat_map(|message| (1..=5).map(move |version| event(&format!("m{message}"), message, version))).collect()
}

#[tokio::test]
async fn q19_repeated_shuffled_and_concurrent_writes_leave_the_same_documents() {
    let indices = TestIndices::new("same").await;
    let events = some_events();
    record(&indices.store(), &events).await;
    let once = indices.documents().await;
    assert_eq!(once.len(), 20 + 20 * 5);
    // The same events again, one by one, in reverse order.
    for event in events.iter().rev() {
        record(&indices.store(), std::slice::from_ref(event)).await;
    }
    assert_eq!(indices.documents().await, once);

    let other = TestIndices::new("same").await;
    let (one, two) = (other.store(), other.store());
    for _ in 0..3 {
        let (mut mine, mut yours) = (events.clone(), events.clone());
        mine.shuffle(&mut rand::rng());
        yours.shuffle(&mut rand::rng());
        let (some, rest) = mine.split_at(33);
        tokio::join!(record(&one, some), record(&two, &yours), record(&one, rest));
    }
    let there: Vec<_> = other.documents().await;
    let same = |(index, id, source): &(String, String, String)| {
        (index.replace(&other.prefix, &indices.prefix), id.clone(), source.clone())
    };
    assert_eq!(there.iter().map(same).collect::<Vec<_>>(), once);
    indices.remove().await;
    other.remove().await;
}

#[tokio::test]
async fn q19_a_rejected_event_does_not_affect_others() {
    let indices = TestIndices::new("reject").await;
    let store = indices.store();
    let events = [
        event("good", 1, 1),
        changed(event("good", 1, 2), |event| event.worker = "x".repeat(40_000)),
        changed(event("early", 2, 1), |event| event.at_ms = u64::MAX),
        event("other", 3, 1),
        changed(event("late", 4, 1), |event| event.at_ms = 7_300_000_000_000),
    ];
    let rejected = store.record(&events).await.expect("the rest is written");
    assert_eq!(rejected.iter().map(|rejected| rejected.index).collect::<Vec<_>>(), [1, 2, 4], "{rejected:?}");
    let why = |at: usize| &rejected.get(at).expect("three").why;
    assert!(why(0).contains("worker") && why(0).len() < 1_000, "{}", why(0));
    assert!(why(1).starts_with("at_ms ") && why(2).starts_with("at_ms "), "{rejected:?}");
    store.advance(ONLY, NOON_MS).await.expect("visible");
    let mut found: Vec<_> = all(&store).await.into_iter().map(|message| (message.id, message.version)).collect();
    found.sort();
    assert_eq!(found, [("good".to_owned(), 1), ("other".to_owned(), 1)], "the newest version that is not rejected");
    // The next event of the same message is recorded.
    record(&store, &[event("good", 1, 3)]).await;
    let query = TraceQuery {
        queue: events[0].shard.queue.clone(),
        id: events[0].event.id.clone(),
        sequence: None,
        limit: 10,
        after: None,
    };
    store.advance(ONLY, NOON_MS + 5_000).await.expect("visible");
    let trace = store.trace(&query).await.expect("a trace");
    assert_eq!(trace.transitions.iter().map(|transition| transition.version).collect::<Vec<_>>(), [1, 3]);
    indices.remove().await;
}

#[tokio::test]
async fn q19_a_bulk_that_is_too_large_for_the_server_is_split() {
    let dir = tempfile::tempdir().expect("a folder");
    let settings = vec![("http.max_content_length".to_owned(), "64kb".to_owned())];
    let options = PrivateElasticsearchOptions { settings, ..PrivateElasticsearchOptions::new(dir.path()) };
    let server = PrivateElasticsearch::start(options).await.expect("an Elasticsearch");
    let options = ElasticOptions { replicas: 0, ..ElasticOptions::new(server.url()) };
    let store = Elastic::new(options).expect("good options");
    let mut events: Vec<Recorded> = (1..=1_000).map(|n| event(&format!("m{n}"), n, 1)).collect();
    events[500].event.payload = Some(vec![7; 100_000].into());
    let rejected = store.record(&events).await.expect("the rest is written");
    assert!(matches!(&rejected[..], [Rejected { index: 500, .. }]), "{rejected:?}");
    store.advance(ONLY, NOON_MS).await.expect("visible");
    let query = SearchQuery { limit: 2_000, ..SearchQuery::default() };
    assert_eq!(store.search(&query).await.expect("a response").len(), 1_000, "only the payload is missing");
    server.stop().await;
}
