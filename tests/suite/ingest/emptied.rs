//! The store of the counters is emptied while records come: they wait, and none becomes a dead letter (X7, N17).

use super::stage::{NAMESPACE, Stage};
use super::topics::{Written, now_ms};
use crate::system::program::{self, SOON};
use std::time::Duration;
use tallystone_client::{Error, NamespaceConfig};
use tokio::time::{Instant, sleep};

const POLL: Duration = Duration::from_millis(10);
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

    let mut connection = stage.redis.connection().await;
    redis::cmd("FLUSHALL").exec_async(&mut connection).await.expect("an emptied Redis");
    stage.write(&records()).await;
    let give_up_at = Instant::now() + SOON;
    while stage.topics.claimed_to().await <= RECORDS {
        assert!(Instant::now() < give_up_at, "no record is claimed");
        sleep(POLL).await;
    }
    let found = stage.client.get_namespace(NAMESPACE).await;
    assert!(matches!(&found, Err(Error::Refused(refused)) if refused.reason == "DATA_LOSS"), "{found:?}");
    assert!(!stage.topics.are_decided().await, "they wait");
    assert!(stage.topics.dead_letters().await.is_empty());

    // As documented: the namespace is created again before records may be sent.
    stage.ingests[0].stop().await;
    let accepted =
        program::run(program::command(&["store", "accept", "--redis-url", &stage.redis.url(), "--json"]), "").await;
    assert_eq!(accepted.code, Some(0), "{accepted:?}");
    assert!(accepted.object()["counters"].is_string(), "{accepted:?}");
    let give_up_at = Instant::now() + SOON;
    while let Err(error) = stage.client.list_namespaces().await {
        assert!(Instant::now() < give_up_at, "{error}");
        sleep(POLL).await;
    }
    stage.namespace(NamespaceConfig { accept_limit_ms: Some(600_000), ..NamespaceConfig::default() }).await;
    stage.ingest(None).await;
    stage.assert_exact().await;
    assert!(stage.topics.dead_letters().await.is_empty());
}
