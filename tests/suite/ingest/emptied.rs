//! The store of the counters is emptied while records come: they wait, and none becomes a dead letter (X7, N17).

use super::stage::{NAMESPACE, Stage};
use super::topics::{Written, now_ms};
use crate::system::program::until;
use tallystone_client::{Error, NamespaceConfig};

const RECORDS: i64 = 200;

fn records() -> Vec<Written> {
    (0..RECORDS).map(|_| Written::add(0, now_ms(), "c", 1)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn n17_records_wait_while_the_counters_have_lost_their_data() {
    let mut stage = Stage::start("emptied", 1, 600_000).await;
    stage.ingest(None).await;
    // The member knows the namespace then.
    stage.topics.write(&records()).await;
    stage.topics.until_decided().await;
    assert_eq!(stage.client.get(NAMESPACE, "c").await.expect("a count").count, RECORDS);

    stage.redis.flush().await;
    stage.write(&records()).await;
    until("a record is claimed", async || stage.topics.claimed_to().await > RECORDS).await;
    let found = stage.client.get_namespace(NAMESPACE).await;
    assert!(matches!(&found, Err(Error::Refused(refused)) if refused.reason == "DATA_LOSS"), "{found:?}");
    assert!(!stage.topics.are_decided().await, "they wait");
    assert!(stage.topics.dead_letters().await.is_empty());

    // As documented: the namespace is created again before records may be sent.
    stage.ingests[0].stop().await;
    let accepted = stage.redis.accept().await;
    assert!(accepted["counters"].is_string(), "{accepted:?}");
    until("the counters serve", async || stage.client.list_namespaces().await.is_ok()).await;
    stage.namespace(NamespaceConfig { accept_limit_ms: Some(600_000), ..NamespaceConfig::default() }).await;
    stage.ingest(None).await;
    stage.assert_exact().await;
    assert!(stage.topics.dead_letters().await.is_empty());
}
