//! A broker that hangs: it keeps its connections and does not answer (V5).

use super::stage::Stage;
use crate::views::view;
use futures::future::join_all;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::sync::Arc;
use tallystone_tests::TestKafka;

/// Batches that are posted at the same time, each of so many views that it is an entry of the log by itself.
const BATCHES: u64 = 12;
const VIEWS: u64 = 1_000;

fn batch(number: u64) -> Value {
    let views: Vec<Value> = (0..VIEWS).map(|user| view("v", &format!("{:0>128}", number * VIEWS + user))).collect();
    json!({ "views": views })
}

#[tokio::test(flavor = "multi_thread")]
async fn v5_posts_are_answered_while_the_broker_hangs_and_what_was_not_sent_is_not_in_the_log() {
    let mut stage = Stage::start(Arc::new(TestKafka::start().await), "hangs", 2, "").await;
    stage.add_views_on("views").await;
    let http = stage.http(0);
    http.accepted("/v1/views", &view("v", "first")).await;
    http.until_counts("/v1/videos/v/views", 1, 1, 1).await;
    stage.kafka.signal(Signal::SIGSTOP).await;
    let batches: Vec<Value> = (0..BATCHES).map(batch).collect();
    let answers = join_all(batches.iter().map(|batch| http.post("/v1/views:batch", batch))).await;
    let (status, counts) = http.get("/v1/videos/v/views").await;
    assert_eq!((status, &counts["viewCount"]), (200, &json!(1)), "{counts}");
    stage.kafka.signal(Signal::SIGCONT).await;
    let mut unsent = 0;
    for (status, answer) in &answers {
        let error = &answer["error"];
        assert_eq!((*status, &error["reason"]), (503, &json!("STORE_UNAVAILABLE")), "{answer}");
        assert_eq!(error["retry_after_ms"], 1_000, "{answer}");
        unsent += u64::from(error["applied"] == "no");
    }
    // One entry is sent, and fails after some seconds. Those behind it have waited as long then. Without a bound each of them
    // is sent, one after the other.
    assert!(unsent > BATCHES / 2, "{unsent} of {BATCHES} were not sent");
    for batch in &batches {
        let post = async || http.post("/v1/views:batch", batch).await.0;
        crate::counting::house::until(post, |status| *status == 202).await;
    }
    stage.has_counted_all(0, "end").await;
    let views = 1 + BATCHES * VIEWS;
    let counts = http.until("/v1/videos/v/views", |counts| {
        counts["viewCount"] == views && counts["pageViews"].as_u64() >= Some(views)
    });
    // A page view is a record of the log: those that were perhaps sent may be there twice, and no other.
    let twice = counts.await["pageViews"].as_u64().expect("a number") - views;
    assert!(twice <= (BATCHES - unsent) * VIEWS, "{twice} views are in the log twice, {unsent} batches were not sent");
}
