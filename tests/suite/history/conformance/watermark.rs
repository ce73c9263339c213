//! The watermark: Q20. It belongs to the whole store, so these tests have their own store.

use tallystone_indexer::Source;
use tallystone_tests::{HistoryFixture, HistoryUnderTest};

over_history_stores!(q20_the_watermark_is_that_of_the_slowest_source);

async fn q20_the_watermark_is_that_of_the_slowest_source<S: HistoryUnderTest>(_: &HistoryFixture<S>) {
    let held = S::fresh(u64::MAX).await;
    let store = &held.store;
    let advance = async |number: u32, up_to_ms: u64| {
        store.advance(Source { number, of: 3 }, up_to_ms).await.expect("an advance");
        store.watermark().await.expect("a watermark")
    };
    assert_eq!(store.watermark().await, Ok(None), "no source has a watermark");
    assert_eq!(advance(0, 1_000).await, None);
    assert_eq!(advance(2, 900).await, None, "one source has none yet");
    assert_eq!(advance(0, 1_100).await, None);
    assert_eq!(advance(1, 1_500).await, Some(900));
    assert_eq!(advance(2, 2_000).await, Some(1_100));
    assert_eq!(advance(0, 500).await, Some(1_100), "it never decreases");
    assert_eq!(advance(1, 1_499).await, Some(1_100));
    assert_eq!(advance(0, 1_800).await, Some(1_500));
    assert_eq!(advance(1, i64::MAX as u64).await, Some(1_800));
}
