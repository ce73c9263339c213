//! The log of views is emptied: no process begins with what is left, so no pair counts twice (V3, X7).

use super::machines::Machines;
use super::view;
use crate::counting::house::until;
use crate::crash::machines::Redis;
use serde_json::json;
use std::time::Duration;
use tallystone_client::CounterClient;

#[tokio::test(flavor = "multi_thread")]
async fn v3_x7_a_pair_does_not_count_again_after_the_log_was_emptied() {
    // The counters keep their data.
    let counters_redis = Redis::start().await;
    let machines = Machines::start_on(&counters_redis.url(), &[], 1).await;
    let http = machines.http(0);
    http.accepted("/v1/views", &view("v", "u")).await;
    http.until_count("/v1/videos/v/views", 1).await;

    machines.redis.flush().await;
    // The same pair, until the loss is noticed.
    let refused = until(async || http.post("/v1/views", &view("v", "u")).await, |(status, _)| *status != 202).await;
    assert_eq!(refused.1["error"]["reason"], json!("DATA_LOSS"), "{refused:?}");
    assert_eq!(machines.waiting_deltas().await, Vec::<u64>::new());
    let counters = CounterClient::builder(machines.counters.url()).retry_for(Duration::from_secs(10));
    let counters = counters.connect().await.expect("a server that listens");
    assert_eq!(counters.get("views-default", "v").await.expect("a count").count, 1);
}
