//! What a person sees in a terminal with 80 columns.

use super::dev::Dev;
use super::program::{self, SOON};
use super::terminal::{Terminal, plain_lines, show};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

const NAME: &str = "flights-of-united-airlines";
const ID: &str = "2013-01-01T10:15:00Z/UA1545/EWR-IAH";

/// A queue with a message in each of three states, and their history.
async fn dev() -> Dev {
    let dev = Dev::start().await;
    dev.ok(&["queue", "create", NAME, "--exclusive", "aircraft", "--index", "origin,carrier"]).await;
    for id in [ID, "waits", "is-canceled"] {
        let meta =
            ["--meta", "aircraft=N14228", "--meta", "origin=Newark-Liberty", "--meta", "carrier=United-Airlines"];
        dev.ok(&[&["msg", "enqueue", NAME, "--id", id], &meta[..]].concat()).await;
    }
    let reason = "the passengers have decided that they would rather stay at home and read a good book";
    dev.ok(&["msg", "cancel", NAME, "is-canceled", "--reason", reason]).await;
    let canceled = async || {
        while dev.call(&["msg", "search", "--state", "canceled"]).await.json().is_empty() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, canceled()).await.expect("history");
    dev
}

/// Without ages, which are others each time.
fn words(text: &str) -> BTreeSet<&str> {
    let is_age = |word: &str| word.contains('.') && word.parse::<f64>().is_ok();
    text.split_whitespace().filter(|word| !is_age(word)).collect()
}

#[tokio::test]
async fn no_word_is_broken_and_states_have_colours() {
    let dev = dev().await;
    for args in [
        &["queue", "ls"][..],
        &["queue", "ls", "--all"],
        &["queue", "describe", NAME],
        &["msg", "ls", NAME],
        &["msg", "get", NAME, "is-canceled"],
        &["msg", "explain", NAME, "waits"],
        &["msg", "search"],
        &["msg", "trace", NAME, "is-canceled"],
        &["msg", "cancel", NAME, "is-canceled"],
        &["check"],
    ] {
        let shown = show(&dev, args).await;
        let piped = dev.show(args).await;
        assert!(!piped.contains('\u{1b}'), "{args:?}: {piped:?}");
        // The age of a watermark is another one each time.
        let lines = plain_lines(&shown);
        for line in lines.iter().filter(|line| !line.starts_with("As of")) {
            assert!(line.chars().count() <= 80, "{args:?}: {line:?}");
            let broken: Vec<_> = words(line).difference(&words(&piped)).map(|word| word.to_string()).collect();
            assert!(broken.is_empty(), "{args:?}: {broken:?} in\n{}", lines.join("\n"));
        }
        let has_state = !matches!(args, ["msg", "ls", ..] | ["check"]);
        assert_eq!(shown.contains("\u{1b}["), has_state, "{args:?}: {shown:?}");
    }
    let stats = show(&dev, &["queue", "stats", NAME]).await;
    assert!(plain_lines(&stats).iter().all(|line| line.chars().count() <= 80), "{stats}");

    let mut colourless = program::command(&["--server", dev.url(), "queue", "ls"]);
    colourless.env("NO_COLOR", "1");
    let (_, shown) = Terminal::start(colourless, 80).ended().await;
    assert!(!shown.contains('\u{1b}'), "{shown:?}");

    let unknown = program::command(&["--server", dev.url(), "queue", "describe", "nothing-of-this-name-exists-here"]);
    let (code, shown) = Terminal::start(unknown, 80).ended().await;
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    dev.stop().await;
}

#[tokio::test]
async fn internal_queues_are_shown_on_request() {
    let dev = Dev::start().await;
    dev.ok(&["queue", "create", "ours"]).await;
    let names = async |args: &[&str]| -> Vec<String> {
        let listed = dev.call(&[&["queue", "ls"], args].concat()).await.json();
        listed.iter().map(|queue| queue["name"].as_str().expect("a name").to_owned()).collect()
    };
    let internal = ["rollup/archive", "rollup/default/0of1"];
    // The archiver creates its queue when it starts.
    let give_up_at = Instant::now() + SOON;
    while names(&["rollup/"]).await != internal {
        assert!(Instant::now() < give_up_at, "{:?}", names(&["rollup/"]).await);
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(names(&[]).await, ["ours"]);
    assert_eq!(names(&["--all"]).await, ["ours", internal[0], internal[1]]);
    assert!(names(&["r"]).await.is_empty());
    dev.stop().await;
}

#[tokio::test]
async fn refusals_speak_of_flags() {
    let dev = Dev::start().await;
    dev.ok(&["queue", "create", "q", "--exclusive", "tail"]).await;
    let (meta, text) = (["--meta", "tail=1"], "x".repeat(40_000));
    for (args, words) in [
        (&["queue", "update", "q", "--lease", "1ms"][..], "--lease is 1ms; must be from 1s to "),
        (&["queue", "create", "r", "--backoff", "fixed", "--backoff-jitter", "101"], "--backoff-jitter is 101"),
        (&["msg", "enqueue", "q"], "--meta: "),
        (&["msg", "enqueue", "q", "--max-attempts", "0", meta[0], meta[1]], "--max-attempts is 0"),
        (&["msg", "enqueue", "q", "--payload", &text, meta[0], meta[1]], "--payload is 40000 bytes"),
    ] {
        let ended = dev.call(args).await;
        assert_eq!(ended.code, Some(1), "{args:?}: {ended:?}");
        let error: serde_json::Value = serde_json::from_str(ended.stderr.trim()).expect("JSON");
        let error = error["error"].as_str().expect("a text");
        assert!(error.starts_with(words), "{args:?}: {error}");
    }
    let line = r#"{"id": "m", "lease_ms": 1, "metadata": {"tail": "1"}}"#;
    let report = dev.call_with(&["msg", "enqueue", "q", "--file", "-"], line).await.object();
    let error = report["refused_lines"][0]["error"].as_str().expect("a text").to_owned();
    assert!(error.starts_with("lease_ms: is 1"), "a line has fields, and no flags: {error}");
    dev.stop().await;
}
