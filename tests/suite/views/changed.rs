//! A log that is opened with another configuration (V2).

use super::stage::{Http, serve};
use super::view;
use crate::counting::house::House;
use tallystone_tests::volatile;
use tallystone_views::log::{OpenError, ViewLog};
use tallystone_views::{ViewNamespace, ViewsConfig};

fn named(name: &str) -> ViewNamespace {
    ViewNamespace { name: name.to_owned(), ..ViewNamespace::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn v2_another_number_of_partitions_is_refused() {
    let house = House::without_rollups().await;
    let open = async |partitions| ViewLog::connect(&volatile(&house.redis.url()), partitions).await.map(drop);
    open(2).await.expect("a new log");
    assert!(matches!(open(3).await, Err(OpenError::Partitions { found: 2 })));
    open(2).await.expect("the same log");
}

#[tokio::test(flavor = "multi_thread")]
async fn v2_another_window_begins_without_pairs_and_a_removed_namespace_does_not_count() {
    let (house, config) = (House::without_rollups().await, ViewsConfig { partitions: 1, ..ViewsConfig::default() });
    let start = async |namespaces| {
        serve(&house.urls[0], &house.redis.url(), ViewsConfig { namespaces, ..config.clone() }).await
    };
    let first = start(vec![named("default"), named("kept"), named("removed")]).await;
    let http = Http::new(first.url());
    for prefix in ["", "/kept", "/removed"] {
        http.accepted(&format!("{prefix}/v1/views"), &view("v", "u")).await;
        http.until_counts(&format!("{prefix}/v1/videos/v/views"), 1, 1, 1).await;
    }
    first.stop().await.expect("it stops in order");
    let shorter = ViewNamespace { window_ms: 1_800_000, ..named("default") };
    let second = start(vec![shorter, named("kept")]).await;
    let http = Http::new(second.url());
    for prefix in ["", "/kept"] {
        http.accepted(&format!("{prefix}/v1/views"), &view("v", "u")).await;
    }
    assert_eq!(http.post("/removed/v1/views", &view("v", "w")).await.0, 404);
    // The days are the same, and the pairs of the window are new.
    http.until_counts("/v1/videos/v/views", 2, 2, 1).await;
    http.until_counts("/kept/v1/videos/v/views", 1, 2, 1).await;
    second.stop().await.expect("it stops in order");
}
