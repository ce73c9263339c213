//! What the sender of a message chooses cannot write to the terminal of the person who reads it, add a line to the output,
//! or turn the order of its words.

use crate::system::dev::Dev;
use crate::system::program::{self, SOON};
use tallystone_client::{Client, Completion, Dequeue, NewMessage};

/// Turns the order of the words behind it.
const BIDI: &str = "\u{202e}";
/// What a hostile payload and result say in addition.
const FORGED: &str = "harmless\n  state           errored\r\n\u{1b}[2Kmessage forged\u{2028}2026-11-21 INFO\u{2066}";

/// Fails if a text has a character that is not seen, or a line that only the sender of the message wrote.
fn assert_harmless(shown: &str) {
    let unseen = |c: &char| {
        (c.is_control() && *c != '\n')
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert_eq!(shown.chars().find(unseen), None, "{shown:?}");
    for line in shown.lines() {
        assert!(!line.starts_with("  state           errored") && !line.starts_with("message forged"), "{shown}");
    }
}

#[tokio::test]
async fn s1_output_of_messages_cannot_be_forged() {
    let dev = Dev::start().await;
    let client = Client::connect(dev.url()).await.expect("a client");
    let (id, key) = (format!("m{BIDI}1"), format!("k{BIDI}"));
    let show = async |args: &[&str]| {
        let shown = dev.show(args).await;
        assert!(!shown.trim().is_empty(), "{args:?}");
        assert_harmless(&shown);
        shown
    };
    let pair = format!("{key}=v\u{2028}w");
    let enqueued = show(&["msg", "enqueue", "q", "--id", &id, "--payload", FORGED, "--meta", &pair]).await;
    assert!(enqueued.contains("m\\u{202e}1"), "{enqueued}");
    show(&["msg", "explain", "q", &id]).await;
    show(&["msg", "ls", "q"]).await;
    let dequeue = Dequeue::new("q").worker(format!("w{BIDI}"));
    let lease = client.dequeue(dequeue).await.expect("a lease").remove(0);
    let got = show(&["msg", "get", "q", &id]).await;
    assert!(got.contains("payload         harmless\n                    state           errored\\r\n"), "{got}");
    show(&["msg", "ls", "q", "--state", "running"]).await;
    let completion = Completion { result: FORGED.into(), ..Completion::of(&lease) };
    client.complete("q", vec![completion]).await.expect("an answer").remove(0).expect("a live lease");
    show(&["msg", "get", "q", &id]).await;
    assert!(client.history_caught_up(SOON).await.expect("an answer"), "the index does not catch up");
    show(&["msg", "trace", "q", &id]).await;
    let found = show(&["msg", "search", "--queue", "q"]).await;
    // The header, the message, and the time of the index.
    assert_eq!(found.lines().count(), 3, "{found}");
    show(&["queue", "depth", "q", "--group-by", &key]).await;

    show(&["queue", "create", "typed", "--exclusive", &key, "--index", &key]).await;
    show(&["queue", "describe", "typed"]).await;
    show(&["queue", "ls"]).await;
    client.enqueue("q", vec![NewMessage::new("b", "").metadata("k", "v")]).await.expect("an answer");
    let canceled = format!("because{BIDI}");
    show(&["msg", "cancel", "q", "b", "--reason", &canceled]).await;
    show(&["msg", "get", "q", "b"]).await;
    show(&["msg", "ls", "q", "--state", "canceled"]).await;

    // Errors, and refused lines.
    let absent = program::command(&["--server", dev.url(), "msg", "get", "q", &format!("no{BIDI}\u{1b}[2K")]);
    let ended = program::run(absent, "").await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_harmless(&ended.stderr);
    let lines = format!("{{\"id\":\"x\",\"no{BIDI}field\":1}}\n");
    let enqueue = program::command(&["--server", dev.url(), "msg", "enqueue", "q", "--file", "-"]);
    let ended = program::run(enqueue, &lines).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("\\u{202e}"), "{ended:?}");
    assert_harmless(&(ended.stdout + &ended.stderr));
    dev.stop().await;
}

#[tokio::test]
async fn s1_output_of_counters_cannot_be_forged() {
    let dev = Dev::start().await;
    let counters = dev.ready["counters"].as_str().expect("a URL");
    let (counter, token) = (format!("c{BIDI}"), format!("t{BIDI}"));
    let show = async |args: &[&str]| {
        let shown = dev.show(&[&["counter", "--counters", counters], args].concat()).await;
        assert!(shown.contains("\\u{202e}"), "{args:?}: {shown:?}");
        assert_harmless(&shown);
    };
    show(&["add", &counter, "5", "--token", &token, "--at", "1s"]).await;
    show(&["get", &counter, &counter]).await;
    show(&["ls"]).await;
    show(&["events", &counter]).await;
    show(&["clear", &counter]).await;
    show(&["delete", &counter, "--yes"]).await;
    dev.stop().await;
}
