//! Namespaces of counts are deleted while views are counted (V3).

use super::stage::Stage;
use super::{deltas, view, waiting_records};
use crate::counting::house::until;
use std::sync::atomic::{AtomicU64, Ordering};
use tallystone_client::{CounterClient, CounterType, NamespaceConfig};
use tallystone_tests::TestConnection;
use tallystone_views::ViewNamespace;

const NAMESPACE: &str = "views-default";

async fn delete(counters: &CounterClient) {
    let namespace = counters.get_namespace(NAMESPACE).await.expect("a namespace");
    counters.delete_namespace(&namespace).await.expect("deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn v3_a_namespace_of_counts_that_is_deleted_is_created_again() {
    let stage = Stage::start(vec![ViewNamespace::default()], 1).await;
    let (http, counters) = (&stage.http, &stage.house.clients[0]);
    for (number, user) in ["a", "b", "c"].into_iter().enumerate() {
        http.accepted("/v1/views", &view("v", user)).await;
        let number = number as u64 + 1;
        http.until_counts("/v1/videos/v/views", 1, number, number).await;
        delete(counters).await;
    }
}

/// The sum of the deltas that wait for the counters.
async fn waiting(redis: &TestConnection) -> u32 {
    waiting_records(&mut redis.clone(), 1).await.iter().flat_map(|(_, record)| deltas(record)).sum()
}

/// Such a namespace ignores tokens, so an add whose answer was lost would count twice.
#[tokio::test(flavor = "multi_thread")]
async fn v3_a_namespace_that_another_process_creates_without_tokens_gets_no_views() {
    let stage = Stage::start(vec![ViewNamespace::default()], 1).await;
    let (http, counters) = (&stage.http, &stage.house.clients[0]);
    http.accepted("/v1/views", &view("v", "first")).await;
    http.until_count("/v1/videos/v/views", 1).await;
    delete(counters).await;
    let config = NamespaceConfig { counter_type: Some(CounterType::BestEffort), ..NamespaceConfig::default() };
    counters.put_namespace(NAMESPACE, config.clone()).await.expect("created");
    let (redis, users) = (stage.house.redis.connection().await, AtomicU64::new(0));
    // The sink notices it after some seconds. Then it sends no delta any more, and more and more of them wait. A view has three.
    let post = async || {
        let user = users.fetch_add(1, Ordering::Relaxed);
        http.accepted("/v1/views", &view("v", &user.to_string())).await;
        waiting(&redis).await
    };
    until(post, |waiting| *waiting >= 3 * 6).await;
    // One that counts each token once gets all that have waited.
    delete(counters).await;
    counters
        .put_namespace(NAMESPACE, NamespaceConfig { counter_type: Some(CounterType::Accurate), ..config })
        .await
        .expect("created");
    until(async || waiting(&redis).await, |waiting| *waiting == 0).await;
    http.until("/v1/videos/v/views", |counts| counts["viewCount"].as_u64() >= Some(6)).await;
}
