//! `tallystone msg redrive|cancel|update QUEUE --state …` (Q25).

use super::dev::Dev;
use super::program;
use super::terminal::Terminal;
use serde_json::json;

const MESSAGES: u64 = 1_500;

async fn dev_with_messages() -> Dev {
    let dev = Dev::start().await;
    let line = |n: u64| {
        let org = ["x", "y", "z"][n as usize % 3];
        json!({"id": format!("m{n:04}"), "metadata": {"org": org}}).to_string()
    };
    let lines: Vec<String> = (0..MESSAGES).map(line).collect();
    dev.call_with(&["msg", "enqueue", "q", "--file", "-"], &lines.join("\n")).await;
    dev
}

#[tokio::test]
async fn q25_messages_are_changed_by_selection_over_several_pages() {
    let dev = dev_with_messages().await;
    let depth = async || dev.ok(&["queue", "describe", "q"]).await["depth"].clone();
    let cancel = ["msg", "cancel", "q", "--state", "pending", "--where", "org=x", "--reason", "Not Wanted"];
    let dry = dev.ok(&[&cancel[..], &["--dry-run"]].concat()).await;
    assert_eq!(dry, json!({"queue": "q", "dry_run": true, "messages": 500}));
    assert_eq!(depth().await["pending"], MESSAGES);
    let report = json!({"queue": "q", "examined": MESSAGES, "matched": 500, "changed": 500});
    assert_eq!(dev.ok(&cancel).await, report);
    assert_eq!(depth().await["canceled"], 500);
    let update = ["msg", "update", "q", "--state", "pending", "--state", "invisible", "--where", "org=y"];
    assert_eq!(dev.ok(&[&update[..], &["--priority", "7"]].concat()).await["changed"], 500);
    assert_eq!(dev.ok(&["msg", "get", "q", "m0001"]).await["priority"], 7);
    assert_eq!(dev.ok(&["msg", "get", "q", "m0002"]).await["priority"], 0);
    let redrive = ["msg", "redrive", "q", "--state", "canceled"];
    for (more, changed) in [
        (&["--reason-contains", "another"][..], 0),
        (&["--reason-equals", "not wanted"], 0),
        (&["--since", "2099-01-01T00:00:00Z"], 0),
        (&["--until", "2020-01-01T00:00:00Z"], 0),
        (&["--reason-contains", "not w", "--since", "1h"], 500),
    ] {
        assert_eq!(dev.ok(&[&redrive[..], more].concat()).await["changed"], changed, "{more:?}");
    }
    assert_eq!(depth().await["pending"], MESSAGES);
    dev.stop().await;
}

#[tokio::test]
async fn q25_a_person_confirms_the_number_and_mistakes_are_named() {
    let dev = dev_with_messages().await;
    let cancel = ["--server", dev.url(), "msg", "cancel", "q", "--state", "pending", "--where", "org=z"];
    for (answer, code, shown) in
        [("n", 1, "nothing was changed"), ("y", 0, "Canceled 500 messages of q."), ("y", 0, "No message of q matches.")]
    {
        let mut terminal = Terminal::start(program::command(&cancel), 80);
        if !shown.starts_with("No") {
            terminal.until("Cancel all matching messages of q, now 500 messages? [y/N] ").await;
            terminal.type_line(answer);
        }
        let (ended, text) = terminal.ended().await;
        assert!(ended == Some(code) && text.contains(shown), "{ended:?} {text}");
    }
    let mut terminal = Terminal::start(program::command(&["--server", dev.url(), "msg", "redrive", "q", "--all"]), 80);
    terminal.until("No message of q matches.").await;
    assert_eq!(terminal.ended().await.0, Some(0));
    let refused = dev.call(&["msg", "redrive", "q", "--state", "pending"]).await;
    assert!(refused.stderr.contains("--state has pending"), "{refused:?}");
    for wrong in [
        &["msg", "redrive", "q", "m1", "--state", "errored"][..],
        &["msg", "redrive", "q", "m1", "--all"],
        &["msg", "redrive", "q", "--all", "--state", "errored"],
        &["msg", "cancel", "q", "--all"],
        &["msg", "cancel", "q", "--where", "org=x"],
        &["msg", "cancel", "q"],
        &["msg", "cancel", "q", "--state", "running", "--force"],
        &["msg", "update", "q", "--state", "pending"],
    ] {
        assert_eq!(dev.call(wrong).await.code, Some(2), "{wrong:?}");
    }
    dev.stop().await;
}
