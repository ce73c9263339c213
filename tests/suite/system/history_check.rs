//! `history check` on many queues and on many messages with gaps: they wait for the watermark together.

use super::dev::Dev;
use super::program::SOON;
use rusqlite::Connection;
use std::collections::BTreeSet;
use tallystone_client::{Client, NewMessage};
use tempfile::TempDir;
use tokio::time::timeout;

/// One after the other they would take minutes, and `Dev::call` waits for one.
const QUEUES: usize = 400;
const GAPS: usize = 1_000;

#[tokio::test]
async fn q20_a_check_of_many_queues_and_gaps_waits_for_all_of_them_together() {
    let dir = TempDir::new().expect("a temporary folder");
    let dev = Dev::start_in(dir.path(), &[]).await;
    let client = Client::connect(dev.url()).await.expect("a client");
    for queue in 0..QUEUES {
        client.enqueue(&format!("q{queue:03}"), vec![NewMessage::new("m", "")]).await.expect("an Enqueue");
    }
    let gaps = (0..GAPS).map(|n| NewMessage::new(format!("m{n:04}"), "")).collect();
    client.enqueue("gaps", gaps).await.expect("an Enqueue");
    assert!(client.history_caught_up(SOON).await.expect("an answer"), "the index does not catch up");
    let checked = dev.call(&["history", "check", "--traces"]).await;
    assert_eq!(checked.code, Some(0), "{checked:?}");
    // `dev` has queues of rollup jobs, too.
    assert!(checked.json().len() > QUEUES, "{checked:?}");
    dev.stop().await;

    // Loses the first transition of each message of one queue.
    let history = Connection::open(dir.path().join("history.db")).expect("the history");
    let lost = "DELETE FROM historic WHERE queue = (SELECT number FROM queues WHERE name = 'gaps')";
    assert_eq!(history.execute(lost, []), Ok(GAPS));
    drop(history);
    let dev = Dev::start_in(dir.path(), &[]).await;
    let checked = timeout(SOON, dev.call(&["history", "check", "--traces"])).await.expect("in time");
    assert_eq!(checked.code, Some(1), "{checked:?}");
    let reports = checked.json();
    let of = |queue: &str| reports.iter().find(|report| report["queue"] == queue).expect("a report");
    let named = of("gaps")["differences"].as_array().expect("a list").iter();
    let named: BTreeSet<&str> = named.filter_map(|found| found["id"].as_str()).collect();
    assert_eq!(named.len(), GAPS);
    assert_eq!(of("q000")["differences"], serde_json::json!([]));
    dev.stop().await;
}
