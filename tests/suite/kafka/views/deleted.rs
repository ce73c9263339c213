//! Namespaces of counts are deleted while views are counted (V3).

use super::stage::Stage;
use crate::views::view;
use tallystone_client::CounterClient;
use tallystone_tests::TestKafka;

#[tokio::test(flavor = "multi_thread")]
async fn v3_a_namespace_of_counts_that_is_deleted_is_created_again_and_no_delta_is_given_up() {
    let mut stage = Stage::start(TestKafka::shared().await, "deleted", 1, "").await;
    stage.add_views().await;
    let counters = CounterClient::builder(stage.counters.url()).connect_lazy().expect("an address");
    let http = stage.http(0);
    for round in 0..2 {
        http.accepted("/v1/views", &view("v", &format!("before-{round}"))).await;
        // The pairs that have counted before a deletion are pairs still.
        http.accepted("/v1/views", &view("v", "before-0")).await;
        let (views, page_views, visitors) = if round == 0 { (1, 2, 1) } else { (2, 5, 3) };
        http.until_counts("/v1/videos/v/views", views, page_views, visitors).await;
        let namespace = counters.get_namespace("views-default").await.expect("a namespace");
        counters.delete_namespace(&namespace).await.expect("deleted");
        http.accepted("/v1/views", &view("v", &format!("after-{round}"))).await;
        http.until_count("/v1/videos/v/views", 1).await;
    }
}
