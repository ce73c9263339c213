//! A server that is killed and restarts.

use super::*;
use tallystone_indexer::HistoryError;

#[tokio::test]
async fn q19_recorded_events_survive_a_kill_and_writes_resume() {
    let indices = TestIndices::on(Arc::new(TestElasticsearch::start().await), "crash");
    let store = indices.store();
    let events: Vec<Recorded> = (1..=500).map(|n| event(&format!("m{n}"), n, 1)).collect();
    record(&store, &events).await;
    store.advance(ONLY, NOON_MS).await.expect("visible");
    indices.server.kill().await;
    let gone = |result: Result<(), HistoryError>| {
        assert!(matches!(result, Err(HistoryError::Unavailable(_))), "{result:?}");
    };
    gone(store.record(&events).await.map(|_| ()));
    gone(store.advance(ONLY, NOON_MS + 1).await);
    gone(store.watermark().await.map(|_| ()));
    gone(store.search(&SearchQuery { limit: 1, ..SearchQuery::default() }).await.map(|_| ()));
    indices.server.start_again().await;
    assert_eq!(store.watermark().await, Ok(Some(NOON_MS)));
    assert_eq!(all(&store).await.len(), 500);
    let more: Vec<Recorded> = (1..=500).map(|n| event(&format!("m{n}"), n, 2)).collect();
    record(&store, &more).await;
    store.advance(ONLY, NOON_MS + 1_000).await.expect("visible");
    assert!(all(&store).await.iter().all(|message| message.version == 2));
    assert_eq!(indices.documents().await.len(), 1_500);
}
