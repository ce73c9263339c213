//! `tallystone work QUEUE --exec CMD`.

use super::dev::Dev;
use super::program::{self, Running};
use serde_json::Value;
use tempfile::TempDir;

#[tokio::test]
async fn the_exit_status_decides_the_outcome() {
    let dev = Dev::start().await;
    dev.ok(&["queue", "create", "q", "--exclusive", "tail", "--max-attempts", "2"]).await;
    for (id, payload) in [("good", "0"), ("bad", "1")] {
        let meta = format!("tail={id}");
        dev.ok(&["msg", "enqueue", "q", "--id", id, "--payload", payload, "--meta", &meta]).await;
    }
    let dir = TempDir::new().expect("a temporary folder");
    let seen = dir.path().join("seen");
    let script = format!(
        r#"echo "$TALLYSTONE_QUEUE $TALLYSTONE_ID $TALLYSTONE_KEY $TALLYSTONE_META_TAIL $TALLYSTONE_ATTEMPT $TALLYSTONE_MAX_ATTEMPTS" >> {}
[ "$TALLYSTONE_DEADLINE_MS" -gt 0 ] && [ "$TALLYSTONE_FENCING_TOKEN" -gt 0 ] || exit 9
exit "$(cat)""#,
        seen.display()
    );
    let args = ["--json", "--server", dev.url(), "work", "q", "--exec", &script, "--name", "tester"];
    let mut worker = Running::start(program::command(&args));
    let mut outcomes = Vec::new();
    for _ in 0..3 {
        let outcome: Value = serde_json::from_str(&worker.line().await).expect("JSON");
        outcomes.push((outcome["id"].as_str().unwrap().to_owned(), outcome["outcome"].as_str().unwrap().to_owned()));
    }
    outcomes.sort();
    let expected = [("bad", "released"), ("bad", "released"), ("good", "completed")];
    assert_eq!(outcomes, expected.map(|(id, outcome)| (id.to_owned(), outcome.to_owned())));
    assert!(worker.stop().await.success());

    let mut seen: Vec<String> = std::fs::read_to_string(seen).unwrap().lines().map(str::to_owned).collect();
    seen.sort();
    assert_eq!(seen, ["q bad bad bad 1 2", "q bad bad bad 2 2", "q good good good 1 2"]);
    let message = dev.ok(&["msg", "get", "q", "bad"]).await;
    assert_eq!((&message["state"], &message["reason"]), (&"errored".into(), &"exit status 1".into()));
    assert_eq!(message["worker"], "tester");
    assert_eq!(dev.ok(&["msg", "get", "q", "good"]).await["state"], "completed");
    assert_eq!(dev.ok(&["msg", "redrive", "q", "bad"]).await["state"], "pending");
    dev.refused(&["work", "nothing", "--exec", "true"], "QUEUE_NOT_FOUND").await;
    dev.stop().await;
}

#[tokio::test]
async fn the_reason_is_the_signal_that_killed_it() {
    let dev = Dev::start().await;
    dev.ok(&["queue", "create", "q", "--max-attempts", "1"]).await;
    dev.ok(&["msg", "enqueue", "q", "--id", "m"]).await;
    let args = ["--json", "--server", dev.url(), "work", "q", "--exec", "kill -9 $$"];
    let mut worker = Running::start(program::command(&args));
    assert!(worker.line().await.contains("released"));
    assert!(worker.stop().await.success());
    assert_eq!(dev.ok(&["msg", "get", "q", "m"]).await["reason"], "killed by signal 9");
    dev.stop().await;
}

#[tokio::test]
async fn all_that_a_successful_command_wrote_to_stderr_is_copied() {
    let dev = Dev::start().await;
    dev.ok(&["queue", "create", "q"]).await;
    dev.ok(&["msg", "enqueue", "q"]).await;
    let args = ["--json", "--server", dev.url(), "work", "q", "--exec", "seq 1 20000 >&2"];
    let mut worker = Running::start_logged(program::command(&args));
    for line in 1..=20_000 {
        assert_eq!(worker.line().await, line.to_string());
    }
    assert!(worker.stop().await.success());
    dev.stop().await;
}

#[tokio::test]
async fn metadata_keys_do_not_collide() {
    let dev = Dev::start().await;
    dev.ok(&["queue", "create", "q"]).await;
    dev.ok(&["msg", "enqueue", "q", "--meta", "a-b=1", "--meta", "a_b=2", "--meta", "c=3"]).await;
    let print = r#"echo "[$TALLYSTONE_META_A_B] [$TALLYSTONE_META_C] $TALLYSTONE_METADATA""#;
    let mut worker = Running::start(program::command(&["--server", dev.url(), "work", "q", "--exec", print]));
    assert_eq!(worker.line().await, r#"[] [3] {"a-b":"1","a_b":"2","c":"3"}"#);
    assert!(worker.stop().await.success());
    dev.stop().await;
}

#[tokio::test]
async fn q23_q29_two_exit_statuses_end_the_message_for_good() {
    let dev = Dev::start().await;
    dev.ok(&["queue", "create", "q"]).await;
    for status in ["99", "100"] {
        dev.ok(&["msg", "enqueue", "q", "--id", status]).await;
    }
    let args = ["--json", "--server", dev.url(), "work", "q", "--exec", "exit $TALLYSTONE_ID"];
    let mut worker = Running::start(program::command(&args));
    for (id, state) in [("99", "canceled"), ("100", "errored")] {
        let outcome: Value = serde_json::from_str(&worker.line().await).expect("JSON");
        assert_eq!((&outcome["id"], &outcome["state"]), (&id.into(), &state.into()), "{outcome}");
        let message = dev.ok(&["msg", "get", "q", id]).await;
        assert_eq!((&message["state"], &message["reason"]), (&state.into(), &format!("exit status {id}").into()));
        assert_eq!((&message["attempts"], &message["max_attempts"]), (&1.into(), &5.into()));
    }
    assert!(worker.stop().await.success());
    dev.stop().await;
}

#[tokio::test]
async fn q22_a_failure_is_kept_with_the_end_of_stderr_and_every_attempt() {
    let dev = Dev::start().await;
    dev.ok(&["queue", "create", "q", "--max-attempts", "2", "--backoff", "none"]).await;
    dev.ok(&["msg", "enqueue", "q", "--id", "m", "--payload", "a flight to nowhere"]).await;
    // The process that is left behind holds stderr open; it is killed with its group.
    let script = "sleep 600 & echo first >&2; echo \"no such airport, $TALLYSTONE_ATTEMPT\" >&2; exit 3";
    let args = ["--json", "--server", dev.url(), "work", "q", "--name", "tester", "--exec", script];
    let mut worker = Running::start(program::command(&args));
    for _ in 0..2 {
        assert!(worker.line().await.contains("released"));
    }
    assert!(worker.stop().await.success());
    let reason = |attempt| format!("exit status 3: first no such airport, {attempt}");
    let message = dev.ok(&["msg", "get", "q", "m"]).await;
    assert_eq!((&message["state"], &message["reason"]), (&"errored".into(), &reason(2).into()));
    let attempts = message["last_attempts"].as_array().expect("a list");
    for (attempt, number) in attempts.iter().zip([1, 2]) {
        assert_eq!((&attempt["number"], &attempt["worker"]), (&number.into(), &"tester".into()));
        assert_eq!(attempt["reason"], reason(number).as_str());
        assert!(attempt["leased_at_ms"].as_u64() <= attempt["ended_at_ms"].as_u64(), "{attempt}");
    }
    assert_eq!(attempts.len(), 2);
    assert!(dev.show(&["msg", "ls", "q", "--state", "errored"]).await.contains(&reason(2)));
    assert!(dev.show(&["msg", "get", "q", "m"]).await.contains(&reason(1)));
    assert_eq!(dev.call(&["history", "check"]).await.code, Some(0));
    let trace = dev.show(&["msg", "trace", "q", "m"]).await;
    assert!(trace.contains("a flight to nowhere"), "history keeps the payload of a failed message: {trace}");
    dev.stop().await;
}
