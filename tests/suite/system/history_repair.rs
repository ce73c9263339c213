//! `history repair` after history was restored from a copy, so that it lacks what happened since.

use super::dev::Dev;
use super::program::SOON;
use crate::ingest::topics::now_ms;
use rusqlite::Connection;
use serde_json::{Value, json};
use std::path::Path;
use tallystone_client::{Client, MessagePatch, NewMessage};
use tempfile::TempDir;

/// The files of the embedded store.
const FILES: [&str; 3] = ["history.db", "history.db-wal", "history.db-shm"];

/// Copies the history of a `dev` that is stopped.
fn copy_history(from: &Path, to: &Path) {
    for file in FILES {
        let _ = std::fs::remove_file(to.join(file));
        if from.join(file).exists() {
            std::fs::copy(from.join(file), to.join(file)).expect("a copy");
        }
    }
}

async fn caught_up(dev: &Dev) -> Client {
    let client = Client::connect(dev.url()).await.expect("a client");
    assert!(client.history_caught_up(SOON).await.expect("an answer"), "the index does not catch up");
    client
}

fn of<'a>(reports: &'a [Value], queue: &str) -> &'a Value {
    reports.iter().find(|report| report["queue"] == queue).unwrap_or_else(|| panic!("no report of {queue}"))
}

/// The ids and states that history shows of a queue.
async fn shown(dev: &Dev, queue: &str) -> Vec<(String, String)> {
    let found = dev.call(&["msg", "search", "--queue", queue, "--limit", "1000"]).await;
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let mut shown: Vec<_> = found.json().iter().map(|found| (text(&found["id"]), text(&found["state"]))).collect();
    shown.sort();
    shown
}

#[tokio::test]
async fn q19_a_history_restored_from_a_copy_is_repaired() {
    let (dir, copy) = (TempDir::new().expect("a folder"), TempDir::new().expect("a folder"));
    let dev = Dev::start_in(dir.path(), &[]).await;
    let client = caught_up(&dev).await;
    let messages = (0..30).map(|n| NewMessage::new(format!("m{n:02}"), "")).collect();
    client.enqueue("q", messages).await.expect("an Enqueue");
    client.enqueue("deleted", vec![NewMessage::new("a", ""), NewMessage::new("b", "")]).await.expect("an Enqueue");
    caught_up(&dev).await;
    dev.stop().await;
    copy_history(dir.path(), copy.path());

    // What the copy does not have: all are purged, one is enqueued again, one is new, a queue is deleted.
    let dev = Dev::start_in(dir.path(), &[]).await;
    let client = caught_up(&dev).await;
    client.enqueue("q", vec![NewMessage::new("kept", "").priority(-5)]).await.expect("an Enqueue");
    for queue in ["q", "deleted"] {
        dev.call(&["queue", "purge", queue, "--yes"]).await;
    }
    dev.call(&["queue", "delete", "deleted", "--yes"]).await;
    client.enqueue("q", vec![NewMessage::new("m07", ""), NewMessage::new("new", "")]).await.expect("an Enqueue");
    caught_up(&dev).await;
    dev.stop().await;
    copy_history(copy.path(), dir.path());

    let dev = Dev::start_in(dir.path(), &[]).await;
    caught_up(&dev).await;
    assert_eq!(shown(&dev, "q").await.len(), 30, "the copy shows what is gone");
    let checked = dev.call(&["history", "check"]).await;
    assert_eq!(checked.code, Some(1), "{checked:?}");
    let reports = checked.json();
    assert_eq!(of(&reports, "q")["gone_without_record"], 30, "{checked:?}");
    assert_eq!(of(&reports, "deleted")["gone_without_record"], 2, "{checked:?}");
    assert!(checked.stderr.contains("history repair"), "{checked:?}");

    let tried = dev.call(&["history", "repair", "--dry-run"]).await;
    let counts = |reports: &[Value], queue: &str| {
        let report = of(reports, queue);
        ["gone", "outdated", "repaired", "left"].map(|field| report[field].as_u64().expect("a number"))
    };
    assert_eq!(counts(&tried.json(), "q"), [30, 0, 0, 1], "{tried:?}");
    assert_eq!(shown(&dev, "q").await.len(), 30, "a dry run changes nothing");

    let repaired = dev.call(&["history", "repair"]).await;
    let reports = repaired.json();
    assert_eq!((counts(&reports, "q"), counts(&reports, "deleted")), ([30, 0, 30, 1], [2, 0, 2, 0]), "{repaired:?}");
    assert_eq!(shown(&dev, "deleted").await, []);
    assert_eq!(shown(&dev, "q").await, [], "only the next transition adds what the copy never had");
    // The events of work that continues are recorded as ever.
    let work = dev.call(&["msg", "cancel", "q", "m07", "--reason", "late"]).await;
    assert_eq!(work.code, Some(0), "{work:?}");
    caught_up(&dev).await;
    assert_eq!(shown(&dev, "q").await, [("m07".to_owned(), "canceled".to_owned())]);
    let again = dev.call(&["history", "repair", "--from", "q"]).await;
    assert_eq!(counts(&again.json(), "q"), [0, 0, 0, 1], "{again:?}");
    assert!(!again.json().iter().any(|report| report["queue"] == json!("deleted")), "{again:?}");
    let unknown = dev.call(&["history", "repair", "no-such-queue"]).await;
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(!unknown.stderr.contains("--from"), "it would end in the same way: {unknown:?}");
    dev.stop().await;
}

#[tokio::test]
async fn q19_losses_stay_while_a_message_changes_during_every_comparison() {
    let dir = TempDir::new().expect("a folder");
    let dev = Dev::start_in(dir.path(), &[]).await;
    let client = caught_up(&dev).await;
    for queue in ["busy", "calm"] {
        client.enqueue(queue, vec![NewMessage::new("m", "")]).await.expect("an Enqueue");
    }
    caught_up(&dev).await;
    dev.stop().await;
    let history = Connection::open(dir.path().join(FILES[0])).expect("the history");
    let lost = "INSERT INTO losses SELECT number, 0, ?1 FROM queues WHERE name IN ('busy', 'calm')";
    assert_eq!(history.execute(lost, [now_ms()]), Ok(2));
    drop(history);

    let dev = Dev::start_in(dir.path(), &[]).await;
    let client = caught_up(&dev).await;
    let changes = tokio::spawn(async move {
        for priority in 1.. {
            let patch = MessagePatch { priority: Some(priority), visible_at_ms: None };
            client.update_message("busy", "m", patch).await.expect("an update");
        }
    });
    let repaired = dev.call(&["history", "repair", "busy", "calm"]).await;
    let checked = dev.call(&["history", "check", "busy"]).await;
    changes.abort();
    assert_eq!(repaired.code, Some(1), "{repaired:?}");
    assert!(repaired.stderr.contains("1 losses are not settled"), "{repaired:?}");
    let counts = |reports: &[Value], queue: &str| {
        let report = of(reports, queue);
        ["undecided", "losses", "kept_losses", "left"].map(|field| report[field].as_u64().expect("a number"))
    };
    let reports = repaired.json();
    assert_eq!((counts(&reports, "busy"), counts(&reports, "calm")), ([1, 0, 1, 0], [0, 1, 0, 0]), "{repaired:?}");
    assert_eq!(of(&checked.json(), "busy")["undecided"], 1, "{checked:?}");

    let again = dev.call(&["history", "repair"]).await;
    assert_eq!(again.code, Some(0), "{again:?}");
    let reports = again.json();
    assert_eq!((counts(&reports, "busy"), counts(&reports, "calm")), ([0, 1, 0, 0], [0, 0, 0, 0]), "{again:?}");
    dev.stop().await;
}
