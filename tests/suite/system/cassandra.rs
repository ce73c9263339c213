//! The archive in Cassandra: `tallystone dev` with a real one (N15, N21).

use super::dev::Dev;
use super::program::{metrics_page, until};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use tallystone_client::{CounterClient, Error, ExactTo, IdempotencyToken, NewAdd};
use tallystone_local::{PrivateCassandra, PrivateCassandraOptions};
use tallystone_tests::lasting_port;

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
    assert!(count(&session, "objects").await > 0);
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
    let new = client.add("ads", NewAdd::new("clicks", 7)).await.expect("a new add needs no archive");
    assert!(!new.duplicate);
    let cassandra = PrivateCassandra::start(options).await.expect("Cassandra, again");
    let mut answered = None;
    let answers = async || {
        answered = client.add("ads", adds[0].clone()).await.ok();
        answered.is_some()
    };
    until("the archive answers again", answers).await;
    assert!(answered.expect("an answer").duplicate, "the first answer");
    let session = SessionBuilder::new().known_node(cassandra.address()).build().await.expect("Cassandra");
    until("what was added meanwhile is archived, too", async || rows(&session).await.len() == 4).await;

    // Also exact to what was added last: an add that counted twice would be in it.
    let to = ExactTo::after(new.event_time_ms).wait(Duration::from_secs(30));
    assert_eq!(client.get_exact("ads", "clicks", to).await.expect("a count").count, 22);
    let audited = dev.counter(&["audit", "clicks", "--namespace", "ads"]).await;
    assert_eq!((&audited["count"], &audited["events"]), (&22.into(), &4.into()), "{audited}");

    let deleted = dev.call(&["counter", "--counters", dev.counters(), "namespace", "delete", "ads", "--yes"]).await;
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    // Its objects go last, and of each its name first.
    let are_gone = async || {
        let mut left = 0;
        for table in ["objects", "versions", "chunks"] {
            left += count(&session, table).await;
        }
        left == 0
    };
    until("its objects are deleted, with their content", are_gone).await;
    assert_eq!((count(&session, "events").await, count(&session, "event_counters").await), (0, 0), "and their rows");
}
