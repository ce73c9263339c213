//! Verbs that remove messages or run them again: on a terminal a person confirms the number.

use super::dev::Dev;
use super::program;
use super::terminal::Terminal;

async fn enqueue(dev: &Dev, ids: &[&str]) {
    for id in ids {
        dev.ok(&["msg", "enqueue", "q", "--id", id]).await;
    }
}

/// Runs a verb on a terminal, answers its question, and returns the exit code.
async fn answered(dev: &Dev, args: &[&str], question: &str, answer: &str) -> Option<i32> {
    let command = program::command(&[&["--server", dev.url()], args].concat());
    let mut terminal = Terminal::start(command, 80);
    terminal.until(&format!("{question}? [y/N] ")).await;
    terminal.type_line(answer);
    terminal.ended().await.0
}

#[tokio::test]
async fn a_person_confirms_the_number_of_messages() {
    let dev = Dev::start().await;
    enqueue(&dev, &["a", "b", "c"]).await;
    dev.ok(&["msg", "cancel", "q", "c"]).await;
    let depth = async |state: &str| dev.ok(&["queue", "describe", "q"]).await["depth"][state].clone();

    let redrive = ["msg", "redrive", "q", "--state", "canceled"];
    let question = "Redrive all matching messages of q, now 1 message";
    for no in ["n", "", "later"] {
        assert_eq!(answered(&dev, &redrive, question, no).await, Some(1));
        assert_eq!(depth("canceled").await, 1);
    }
    assert_eq!(answered(&dev, &redrive, question, "y").await, Some(0));
    assert_eq!(depth("pending").await, 3);

    let purge = ["queue", "purge", "q"];
    assert_eq!(answered(&dev, &purge, "Purge all messages but running ones of q, now 3 messages", "no").await, Some(1));
    assert_eq!(depth("pending").await, 3);
    assert_eq!(
        answered(&dev, &purge, "Purge all messages but running ones of q, now 3 messages", "yes").await,
        Some(0)
    );
    assert_eq!(depth("pending").await, 0);

    enqueue(&dev, &["d"]).await;
    let delete = ["queue", "delete", "q", "--force"];
    assert_eq!(answered(&dev, &delete, "Delete q with all its messages, now 1 message", "").await, Some(1));
    assert_eq!(answered(&dev, &delete, "Delete q with all its messages, now 1 message", "Y").await, Some(0));
    dev.refused(&["queue", "describe", "q"], "QUEUE_NOT_FOUND").await;
    dev.stop().await;
}

#[tokio::test]
async fn yes_and_scripts_are_not_interrupted_and_a_dry_run_changes_nothing() {
    let dev = Dev::start().await;
    enqueue(&dev, &["a", "b"]).await;
    dev.ok(&["msg", "cancel", "q", "b"]).await;
    let redrive = ["msg", "redrive", "q", "--state", "canceled"];
    for (verb, messages) in [
        (&["queue", "purge", "q"][..], 2),
        (&["queue", "delete", "q"], 2),
        (&["queue", "delete", "q", "--force"], 2),
        (&redrive, 1),
        (&["msg", "redrive", "q", "b"], 1),
    ] {
        let dry = dev.ok(&[verb, &["--dry-run"]].concat()).await;
        assert_eq!(dry, serde_json::json!({"queue": "q", "dry_run": true, "messages": messages}), "{verb:?}");
        let depth = dev.ok(&["queue", "describe", "q"]).await["depth"].clone();
        assert_eq!((&depth["pending"], &depth["canceled"]), (&1.into(), &1.into()), "{verb:?}");
    }
    assert_eq!(dev.call(&["queue", "purge", "q", "--yes", "--dry-run"]).await.code, Some(2));
    let counters = dev.ready["counters"].as_str().expect("a URL").to_owned();
    let counter = async |args: &[&str]| dev.ok(&[&["counter", "--counters", &counters], args].concat()).await;
    counter(&["add", "visits", "5"]).await;
    let dry = counter(&["clear", "visits", "--dry-run"]).await;
    assert_eq!(dry, serde_json::json!({"counter": "visits", "dry_run": true, "count": 5}));
    assert_eq!(counter(&["get", "visits"]).await["count"], 5);
    counter(&["clear", "visits"]).await;
    assert_eq!(counter(&["get", "visits"]).await["count"], 0);

    let yes = async |args: &[&str]| {
        let command = program::command(&[&["--server", dev.url()], args, &["--yes"]].concat());
        let (code, shown) = Terminal::start(command, 80).ended().await;
        assert_eq!(code, Some(0), "{shown}");
        shown
    };
    assert!(yes(&redrive).await.contains("Redriven 1 message of q."));
    assert!(yes(&["queue", "purge", "q"]).await.contains("Purged 2 messages of q."));
    assert!(yes(&["queue", "delete", "q"]).await.contains("Deleted q."));
    // A repetition succeeds, as the call does.
    dev.ok(&["queue", "delete", "q"]).await;
    dev.stop().await;
}
