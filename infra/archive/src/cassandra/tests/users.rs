//! A Cassandra with users, which is killed.

use super::{KEYSPACE, create_keyspace};
use crate::{Archive, ArchiveError, ArchivedEvent, NewObject, ShardSpan};
use scylla::client::session_builder::SessionBuilder;
use std::time::{Duration, Instant};
use tallystone_local::{PrivateCassandra, PrivateCassandraOptions};

const SOON: Duration = Duration::from_secs(60);

fn archive(address: &str, password: &str) -> Archive {
    let options = [
        ("CASSANDRA_USERNAME", "cassandra"),
        ("CASSANDRA_PASSWORD", password),
        ("CASSANDRA_DATACENTER", "datacenter1"),
    ];
    let text: String = options.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    let options = Archive::read_options(&text).unwrap();
    Archive::open_with(&format!("cassandra://{address}/{KEYSPACE}"), &options).unwrap()
}

/// Calls until one succeeds.
async fn soon<T, E: std::fmt::Display>(mut call: impl AsyncFnMut() -> Result<T, E>) -> T {
    let give_up_at = Instant::now() + SOON;
    loop {
        match call().await {
            Ok(done) => return done,
            Err(error) => assert!(Instant::now() < give_up_at, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn n21_a_cassandra_that_refuses_or_dies_is_unavailable_and_an_archive_finds_it_again() {
    let dir = tempfile::tempdir().unwrap();
    let options = PrivateCassandraOptions { has_users: true, ..PrivateCassandraOptions::new(dir.path()) };
    let node = PrivateCassandra::start(options.clone()).await.unwrap();
    let address = node.address();
    // Cassandra creates its first user after its start.
    let builder = SessionBuilder::new().known_node(&address).user("cassandra", "cassandra");
    let session = soon(async || builder.build().await).await;
    create_keyspace(&session, KEYSPACE).await;
    for refused in [archive(&address, "wrong"), Archive::open(&format!("cassandra://{address}/{KEYSPACE}")).unwrap()] {
        let error = refused.check().await.unwrap_err();
        assert!(matches!(error, ArchiveError::Unavailable { .. }), "{error}");
    }
    let archive = archive(&address, "cassandra");
    archive.check().await.unwrap();
    archive.begin("ads", Some(7)).await.unwrap();
    let event = ArchivedEvent {
        shard: 0,
        counter_id: [1; 12],
        counter: Some("clicks".into()),
        time_ms: 5,
        token: "t".into(),
        delta: Some(1),
        source: None,
        event_item_key: None,
    };
    let spans = vec![ShardSpan { shard: 0, from_ms: 0, to_ms: 10 }];
    let object = |written_ms| NewObject {
        slice_ms: 0,
        slice_length_ms: 100,
        written_ms,
        spans: spans.clone(),
        events: vec![event.clone()],
    };
    archive.write("ads", object(1)).await.unwrap();

    node.kill();
    node.ended().await;
    let dead = [
        archive.gapless_from_ms("ads").await.map(drop),
        archive.first_slice_ms("ads").await.map(drop),
        archive.write("ads", object(2)).await.map(drop),
        archive.delete_namespace("ads").await.map(drop),
    ];
    assert!(dead.iter().all(|dead| matches!(dead, Err(ArchiveError::Unavailable { .. }))), "{dead:?}");

    let again = PrivateCassandraOptions { port: Some(node.port()), ..options };
    let _node = PrivateCassandra::start(again).await.unwrap();
    assert_eq!(soon(async || archive.gapless_from_ms("ads").await).await, Some(7), "what it has acknowledged survives");
    assert_eq!(soon(async || archive.reached("ads", 0).await).await.written_ms, 1);
    soon(async || archive.write("ads", object(2)).await).await;
    assert_eq!(soon(async || archive.delete_namespace("ads").await).await, 3, "two objects and the mark");
}
