//! The watermark, and that queries find everything before it.

use super::*;
use serde_json::json;
use tallystone_indexer::HistoryError;
use tokio::task::JoinSet;

#[tokio::test]
async fn q20_the_watermark_is_that_of_the_slowest_source() {
    let indices = TestIndices::new("sources").await;
    let (store, reader) = (indices.store(), indices.store());
    let advance = async |number, of, up_to_ms| store.advance(Source { number, of }, up_to_ms).await.expect("progress");
    assert_eq!(reader.watermark().await, Ok(None));
    advance(1, 2, NOON_MS).await;
    assert_eq!(reader.watermark().await, Ok(None), "the first source has none yet");
    advance(0, 2, NOON_MS + 5).await;
    assert_eq!(reader.watermark().await, Ok(Some(NOON_MS)));
    advance(1, 2, NOON_MS + 9).await;
    assert_eq!(reader.watermark().await, Ok(Some(NOON_MS + 5)));
    advance(0, 2, NOON_MS + 1).await;
    assert_eq!(reader.watermark().await, Ok(Some(NOON_MS + 5)), "it never decreases");
    // Partitions were added, and the new ones have no watermark yet.
    advance(1, 4, NOON_MS + 10).await;
    assert_eq!(reader.watermark().await, Ok(None));
    advance(2, 4, NOON_MS + 3).await;
    advance(3, 4, NOON_MS + 10).await;
    assert_eq!(reader.watermark().await, Ok(Some(NOON_MS + 3)));
    for (number, up_to_ms) in [(4, NOON_MS), (0, u64::MAX)] {
        let refused = store.advance(Source { number, of: 4 }, up_to_ms).await;
        assert!(matches!(refused, Err(HistoryError::Failed(_))), "{refused:?}");
    }
    indices.remove().await;
}

/// Disables the periodic refresh of the indices.
async fn disable_refresh(indices: &TestIndices) {
    indices.set("current-2026.11.20", "index.refresh_interval", json!("-1")).await;
    indices.set("historic-2026.11.20", "index.refresh_interval", json!("-1")).await;
}

#[tokio::test]
async fn q20_events_before_the_watermark_are_found() {
    let indices = TestIndices::new("visible").await;
    let (one, two, reader) = (indices.store(), indices.store(), indices.store());
    record(&one, &[event("m", 1, 1)]).await;
    disable_refresh(&indices).await;
    for version in 2..20 {
        record(&one, &[event("m", 1, version)]).await;
        // Sometimes another program advances the watermark, because it has taken over the source.
        let owner = if version % 3 == 0 { &two } else { &one };
        owner.advance(ONLY, event("m", 1, version).event.at_ms).await.expect("visible");
        assert_eq!(all(&reader).await.iter().map(|message| message.version).collect::<Vec<_>>(), [version]);
    }
    indices.remove().await;
}

async fn refreshes(indices: &TestIndices) -> u64 {
    let stats = indices.get(&format!("{}-current-*/_stats/refresh", indices.prefix)).await;
    stats["_all"]["primaries"]["refresh"]["external_total"].as_u64().expect("a count")
}

#[tokio::test]
async fn q20_sources_that_advance_together_share_a_refresh() {
    let indices = TestIndices::new("share").await;
    let store = Arc::new(indices.store());
    record(&store, &[event("m", 1, 1)]).await;
    disable_refresh(&indices).await;
    let advance = async |up_to_ms: u64| {
        let advance = |number| {
            let store = store.clone();
            async move { store.advance(Source { number, of: 12 }, up_to_ms).await }
        };
        let together: JoinSet<_> = (0..12).map(advance).collect();
        for advanced in together.join_all().await {
            advanced.expect("visible");
        }
    };
    advance(NOON_MS).await;
    record(&store, &[event("m", 1, 2)]).await;
    let before = refreshes(&indices).await;
    advance(NOON_MS + 1_000).await;
    let took = refreshes(&indices).await - before;
    assert!((1..=2).contains(&took), "{took}: one, and one for calls that came during the first");
    assert_eq!(all(&store).await[0].version, 2);
    indices.remove().await;
}
