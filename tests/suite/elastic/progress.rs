//! The watermark, and that it is true.

use super::*;
use serde_json::json;
use tallystone_indexer::HistoryError;
use tokio::task::JoinSet;

#[tokio::test]
async fn q20_the_watermark_is_that_of_the_slowest_source() {
    let place = Place::new("sources").await;
    let (store, reader) = (place.store(), place.store());
    let advance = async |number, of, up_to_ms| store.advance(Source { number, of }, up_to_ms).await.expect("progress");
    assert_eq!(reader.watermark().await, Ok(None));
    advance(1, 2, NOON_MS).await;
    assert_eq!(reader.watermark().await, Ok(None), "the first has not said");
    advance(0, 2, NOON_MS + 5).await;
    assert_eq!(reader.watermark().await, Ok(Some(NOON_MS)));
    advance(1, 2, NOON_MS + 9).await;
    assert_eq!(reader.watermark().await, Ok(Some(NOON_MS + 5)));
    advance(0, 2, NOON_MS + 1).await;
    assert_eq!(reader.watermark().await, Ok(Some(NOON_MS + 5)), "it never goes back");
    // Partitions are added: what is in the new ones is not known yet.
    advance(1, 4, NOON_MS + 10).await;
    assert_eq!(reader.watermark().await, Ok(None));
    advance(2, 4, NOON_MS + 3).await;
    advance(3, 4, NOON_MS + 10).await;
    assert_eq!(reader.watermark().await, Ok(Some(NOON_MS + 3)));
    for (number, up_to_ms) in [(4, NOON_MS), (0, u64::MAX)] {
        let refused = store.advance(Source { number, of: 4 }, up_to_ms).await;
        assert!(matches!(refused, Err(HistoryError::Failed(_))), "{refused:?}");
    }
    place.leave().await;
}

/// Indices that show nothing until they are told to.
async fn blind(place: &Place) {
    place.set("current", "index.refresh_interval", json!("-1")).await;
    place.set("historic-2026.11.20", "index.refresh_interval", json!("-1")).await;
}

#[tokio::test]
async fn q20_what_is_below_the_watermark_is_found() {
    let place = Place::new("visible").await;
    let (one, two, reader) = (place.store(), place.store(), place.store());
    record(&one, &[event("m", 1, 1)]).await;
    blind(&place).await;
    for version in 2..20 {
        record(&one, &[event("m", 1, version)]).await;
        // At times it is another program that says so, which has just taken the source over.
        let sayer = if version % 3 == 0 { &two } else { &one };
        sayer.advance(ONLY, event("m", 1, version).event.at_ms).await.expect("visible");
        assert_eq!(all(&reader).await.iter().map(|message| message.version).collect::<Vec<_>>(), [version]);
    }
    place.leave().await;
}

async fn refreshes(place: &Place) -> u64 {
    let stats = place.get(&format!("{}-current/_stats/refresh", place.prefix)).await;
    stats["_all"]["primaries"]["refresh"]["external_total"].as_u64().expect("a count")
}

#[tokio::test]
async fn q20_sources_that_advance_together_share_a_refresh() {
    let place = Place::new("share").await;
    let store = Arc::new(place.store());
    record(&store, &[event("m", 1, 1)]).await;
    blind(&place).await;
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
    let before = refreshes(&place).await;
    advance(NOON_MS + 1_000).await;
    let took = refreshes(&place).await - before;
    assert!((1..=2).contains(&took), "{took}: one, and one for those that came while it ran");
    assert_eq!(all(&store).await[0].version, 2);
    place.leave().await;
}
