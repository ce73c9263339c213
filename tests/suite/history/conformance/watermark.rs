//! How far the answers go: Q20. The watermark is that of the whole store, so these have stores of their own.

use tallystone_indexer::Source;
use tallystone_tests::{Archive, Desk};

over_history_stores!(q20_the_watermark_is_that_of_the_slowest_source);

async fn q20_the_watermark_is_that_of_the_slowest_source<S: Archive>(_: &Desk<S>) {
    let held = S::fresh(u64::MAX).await;
    let store = &held.store;
    let say = async |number: u32, up_to_ms: u64| {
        store.advance(Source { number, of: 3 }, up_to_ms).await.expect("an advance");
        store.watermark().await.expect("a watermark")
    };
    assert_eq!(store.watermark().await, Ok(None), "nobody has said anything");
    assert_eq!(say(0, 1_000).await, None);
    assert_eq!(say(2, 900).await, None, "one has not said yet");
    assert_eq!(say(0, 1_100).await, None);
    assert_eq!(say(1, 1_500).await, Some(900));
    assert_eq!(say(2, 2_000).await, Some(1_100));
    assert_eq!(say(0, 500).await, Some(1_100), "it never goes back");
    assert_eq!(say(1, 1_499).await, Some(1_100));
    assert_eq!(say(0, 1_800).await, Some(1_500));
    assert_eq!(say(1, i64::MAX as u64).await, Some(1_800));
}
