//! The archive in Cassandra: `tallystone dev` with a real one (N15, N21).

use super::dev::Dev;
use super::program::{SOON, metrics_page};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use tallystone_client::{CounterClient, Error, IdempotencyToken, NewAdd};
use tallystone_local::{PrivateCassandra, PrivateCassandraOptions};
use tallystone_tests::{Polling, lasting_port};
use tokio::time::Instant;

/// Counter, token and delta.
type EventRow = (String, String, Option<i64>);

async fn start(folder: &Path, cassandra: &str, metrics: &str) -> Dev {
    let url = format!("cassandra://{cassandra}/counting");
    let environment = [
        ("TALLYSTONE_ARCHIVE_URL", url.as_str()),
        ("TALLYSTONE_ARCHIVE_INTERVAL_MS", "200"),
        ("TALLYSTONE_ARCHIVE_KEEP_MS", "0"),
    ];
    Dev::start_with(folder, &["--metrics-listen", metrics], &environment).await
}

/// The rows of all events.
async fn rows(session: &Session) -> BTreeSet<EventRow> {
    let found =
        session.query_unpaged("SELECT counter, event_token, delta FROM counting.events", ()).await.expect("rows");
    let found = found.into_rows_result().expect("rows");
    found.rows::<EventRow>().expect("three columns").map(|row| row.expect("a row")).collect()
}

async fn count(session: &Session, table: &str) -> usize {
    let found = session.query_unpaged(format!("SELECT * FROM counting.{table}"), ()).await.expect("rows");
    found.into_rows_result().expect("rows").rows_num()
}

/// Polls until a condition holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let (polling, give_up_at) = (Polling::begin(), Instant::now() + SOON);
    while !holds().await {
        assert!(Instant::now() < give_up_at, "{what}");
        polling.pause().await;
    }
}

#[tokio::test]
async fn n21_events_go_to_cassandra_are_found_there_and_can_be_queried() {
    let [folder, data] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let options = PrivateCassandraOptions { port: Some(lasting_port()), ..PrivateCassandraOptions::new(data.path()) };
    let cassandra = PrivateCassandra::start(options.clone()).await.expect("Cassandra");
    let session = SessionBuilder::new().known_node(cassandra.address()).build().await.expect("Cassandra");
    let keyspace = "CREATE KEYSPACE counting WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
    session.query_unpaged(keyspace, ()).await.expect("a keyspace");
    let metrics = format!("127.0.0.1:{}", lasting_port());
    let dev = start(folder.path(), &cassandra.address(), &metrics).await;
    dev.counter(&["namespace", "put", "ads", "--accept-limit", "3s", "--coalesce", "0s"]).await;
    let client = CounterClient::builder(dev.counters()).retry_for(Duration::ZERO).connect().await.expect("a server");
    let adds = ["one", "two", "three"].map(|token| {
        NewAdd::new("clicks", 5).token(IdempotencyToken { token: token.to_owned(), ..IdempotencyToken::now() })
    });
    for add in &adds {
        assert!(!client.add("ads", add.clone()).await.expect("an add").duplicate);
    }
    let is_archived = async || metrics_page(&metrics).await.contains("\ntallystone_archived_events_total 3\n");
    until("three events are archived", is_archived).await;
    let expected: BTreeSet<EventRow> =
        ["one", "two", "three"].map(|token| ("clicks".to_owned(), token.to_owned(), Some(5))).into();
    assert_eq!(rows(&session).await, expected);
    // No other answer than before.
    assert!(client.add("ads", adds[1].clone()).await.expect("a retry").duplicate);
    let audited = dev.counter(&["audit", "clicks", "--namespace", "ads"]).await;
    assert_eq!((&audited["count"], &audited["events"]), (&15.into(), &3.into()), "{audited}");
    let sums = dev.counter(&["get", "clicks", "--namespace", "ads", "--by", "day"]).await;
    assert_eq!((&sums["sum"], &sums["adds"]), (&15.into(), &3.into()), "{sums}");

    cassandra.kill();
    cassandra.ended().await;
    let again = client.add("ads", adds[0].clone()).await.expect_err("its archive does not answer");
    assert!(matches!(again, Error::Unavailable { .. }), "{again:?}");
    assert!(!client.add("ads", NewAdd::new("clicks", 7)).await.expect("a new add needs no archive").duplicate);
    let cassandra = PrivateCassandra::start(options).await.expect("Cassandra, again");
    let is_duplicate = async || client.add("ads", adds[0].clone()).await.is_ok_and(|added| added.duplicate);
    until("the archive answers again", is_duplicate).await;
    let session = SessionBuilder::new().known_node(cassandra.address()).build().await.expect("Cassandra");
    until("what was added meanwhile is archived, too", async || rows(&session).await.len() == 4).await;

    let deleted = dev.call(&["counter", "--counters", dev.counters(), "namespace", "delete", "ads", "--yes"]).await;
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    // Its objects go last.
    until("its objects are deleted", async || count(&session, "objects").await == 0).await;
    assert_eq!((count(&session, "events").await, count(&session, "event_counters").await), (0, 0), "and their rows");
}
