//! The archive in Cassandra: `tallystone dev` with a real one (N15, N21).

use super::archived::{self, Archived};
use super::program::until;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use std::collections::BTreeSet;
use std::time::Duration;
use tallystone_client::{ExactTo, NewAdd};
use tallystone_local::{PrivateCassandra, PrivateCassandraOptions};
use tallystone_tests::lasting_port;

/// Counter, token and delta.
type EventRow = (String, String, Option<i64>);

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
    let url = format!("cassandra://{}/counting", cassandra.address());
    let dev = archived::start(folder.path(), &metrics, &[("TALLYSTONE_ARCHIVE_URL", &url)]).await;
    let archived = Archived::count(&dev, &metrics).await;
    let Archived { client, adds } = &archived;
    let expected: BTreeSet<EventRow> =
        ["one", "two", "three"].map(|token| ("clicks".to_owned(), token.to_owned(), Some(5))).into();
    assert_eq!(rows(&session).await, expected);
    assert!(count(&session, "objects").await > 0);
    archived.is_answered_as_before(&dev).await;

    cassandra.kill();
    cassandra.ended().await;
    archived.is_unavailable().await;
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
