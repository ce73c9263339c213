//! `tallystone msg …`.

use super::dev::Dev;
use super::program;
use serde_json::{Value, json};

#[tokio::test]
async fn a_message_from_flags_to_its_end() {
    let dev = Dev::start().await;
    dev.ok(&["queue", "create", "q", "--exclusive", "tail"]).await;
    let enqueue = |id: &'static str, more: &'static [&'static str]| {
        [&["msg", "enqueue", "q", "--id", id, "--meta", "tail=N1"], more].concat()
    };
    let flags = ["--payload", "hello", "--priority", "-9", "--meta", "k=v=w", "--lease", "5s", "--max-attempts", "2"];
    let accepted = dev.ok(&[&enqueue("a", &[])[..], &flags].concat()).await;
    assert_eq!(accepted["id"], "a");
    let message = dev.ok(&["msg", "get", "q", "a"]).await;
    for (field, value) in [
        ("state", json!("pending")),
        ("payload", json!("hello")),
        ("priority", json!(-9)),
        ("metadata", json!({"tail": "N1", "k": "v=w"})),
        ("lease_ms", json!(5_000)),
        ("max_attempts", json!(2)),
        ("version", json!(1)),
    ] {
        assert_eq!(message[field], value, "{field}");
    }
    // A repetition is the same message; other content under the same id is refused.
    assert_eq!(dev.ok(&[&enqueue("a", &[])[..], &flags].concat()).await, accepted);
    dev.refused(&enqueue("a", &["--payload", "other"]), "ID_CONFLICT").await;
    dev.refused(&["msg", "enqueue", "q", "--payload", "no key"], "INVALID_ARGUMENT").await;
    dev.ok(&enqueue("later", &["--invisibility", "1h"])).await;
    dev.ok(&enqueue("b", &["--priority", "9223372036854775807"])).await;
    let drawn = dev.ok(&["msg", "enqueue", "q", "--meta", "tail=N2", "--payload-file", "-"]).await;
    assert_eq!(drawn["id"].as_str().map(str::len), Some(36), "a UUID");

    let list = dev.call(&["msg", "ls", "q"]).await.json();
    let ids: Vec<&Value> = list.iter().map(|message| &message["id"]).collect();
    assert_eq!(ids, [&json!("a"), &drawn["id"], &json!("b")], "runnable ones first");
    assert_eq!(dev.call(&["msg", "ls", "q", "--state", "invisible"]).await.object()["id"], "later");
    assert_eq!(dev.call(&["msg", "ls", "q", "--limit", "1"]).await.json().len(), 1);
    assert!(dev.show(&["msg", "ls", "q", "--state", "errored"]).await.contains("No errored messages"));

    let explained = dev.ok(&["msg", "explain", "q", "b"]).await;
    assert_eq!(explained["hindrances"][0]["kind"], "behind_in_key", "{explained}");
    assert_eq!(explained["hindrances"][0]["blocking_id"], "a");
    assert_eq!(dev.ok(&["msg", "explain", "q", "later"]).await["hindrances"][0]["kind"], "invisible");
    dev.ok(&["msg", "update", "q", "b", "--priority", "-10"]).await;
    dev.ok(&["msg", "update", "q", "later", "--visible-at", "2020-01-01T00:00:00Z"]).await;
    assert_eq!(dev.ok(&["msg", "get", "q", "later"]).await["state"], "pending");

    let canceled = dev.call(&["msg", "cancel", "q", "a", "nothing", "--reason", "not wanted"]).await;
    assert_eq!(canceled.code, Some(1), "{canceled:?}");
    let outcomes = canceled.json();
    assert_eq!((&outcomes[0]["state"], &outcomes[1]["reason"]), (&json!("canceled"), &json!("MESSAGE_NOT_FOUND")));
    let message = dev.ok(&["msg", "get", "q", "a"]).await;
    assert_eq!((&message["state"], &message["reason"]), (&json!("canceled"), &json!("not wanted")));
    assert_eq!(dev.ok(&["msg", "redrive", "q", "--all"]).await["examined"], 0, "errored ones");
    assert_eq!(
        dev.ok(&["msg", "redrive", "q", "--all", "canceled", "--reason-contains", "wanted"]).await["changed"],
        1
    );
    dev.ok(&["msg", "cancel", "q", "a"]).await;
    assert_eq!(dev.ok(&["msg", "redrive", "q", "a"]).await["state"], "pending");
    dev.refused_item(&["msg", "redrive", "q", "b"], "WRONG_STATE").await;
    dev.stop().await;
}

#[tokio::test]
async fn bad_lines_do_not_affect_others() {
    let dev = Dev::start().await;
    let mut lines: Vec<String> =
        (0..2_500).map(|n| json!({"id": format!("m{n}"), "payload": "x", "priority": n}).to_string()).collect();
    lines[10] = "no JSON".to_owned();
    lines[20] = json!({"id": "unknown field", "prio": 1}).to_string();
    lines[30] = json!({"id": "", "payload": "x"}).to_string();
    lines[40] = json!({"id": "five", "metadata": {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}}).to_string();
    lines[50] = json!({"id": "m0", "payload": "other"}).to_string();
    lines[60] = json!({"id": "big", "payload": "x".repeat(40_000)}).to_string();
    lines[70] = String::new();
    let input = lines.join("\n");
    let ended = dev.call_with(&["msg", "enqueue", "many", "--file", "-"], &input).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let report = ended.object();
    assert_eq!(report["accepted"], 2_493);
    assert_eq!(report["refused"], 6);
    let refused: Vec<u64> =
        report["refused_lines"].as_array().unwrap().iter().map(|line| line["line"].as_u64().unwrap()).collect();
    assert_eq!(refused, [11, 21, 31, 41, 51, 61], "{report:#}");
    // A repetition adds nothing.
    let again = dev.call_with(&["msg", "enqueue", "many", "--file", "-"], &input).await.object();
    assert_eq!(again["accepted"], 2_493);
    assert_eq!(dev.ok(&["queue", "describe", "many"]).await["depth"]["pending"], 2_493);
    let missing = dev.call(&["msg", "enqueue", "many", "--file", "/no/such/file"]).await;
    assert_eq!(missing.code, Some(2), "{missing:?}");
    dev.stop().await;
}

#[tokio::test]
async fn a_refused_id_holds_up_no_later_batch() {
    let dev = Dev::start().await;
    let ids: Vec<String> = (0..1_500).map(|n| format!("m{n}")).collect();
    let lines: String = ids.iter().map(|id| format!("{{\"id\": \"{id}\"}}\n")).collect();
    assert_eq!(dev.call_with(&["msg", "enqueue", "q", "--file", "-"], &lines).await.code, Some(0));
    let each =
        |verb: &'static str| [&["msg", verb, "q"], &ids.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat();
    assert_eq!(dev.call(&each("cancel")).await.code, Some(0));
    let mut some = each("redrive");
    some.insert(3, "no message");
    let redriven = dev.call(&some).await;
    assert_eq!(redriven.code, Some(1), "{redriven:?}");
    assert!(redriven.stderr.contains("1 of 1501 were refused"), "{}", redriven.stderr);
    assert_eq!(redriven.json().len(), 1_501);
    assert_eq!(dev.ok(&["queue", "describe", "q"]).await["depth"]["pending"], 1_500);
    dev.stop().await;
}

#[tokio::test]
async fn q24_many_messages_say_that_they_created_their_queue() {
    let dev = Dev::start().await;
    let line = "{\"id\": \"m\"}\n";
    let args = ["msg", "enqueue", "mispelt", "--file", "-"];
    let [first, second] = [dev.call_with(&args, line).await.object(), dev.call_with(&args, line).await.object()];
    assert_eq!((&first["queue_created"], &second["queue_created"]), (&json!(true), &json!(false)));
    let args = ["--server", dev.url(), "msg", "enqueue", "another", "--file", "-"];
    let created = "This call created the queue 'another'.";
    let first = program::run(program::command(&args), line).await;
    assert!(first.stdout.contains(created), "{first:?}");
    let second = program::run(program::command(&args), line).await;
    assert!(second.stdout.contains("Enqueued 1 messages") && !second.stdout.contains(created), "{second:?}");
    dev.stop().await;
}

#[tokio::test]
async fn q28_priority_classes_from_the_flags_of_a_queue_to_the_order_of_its_messages() {
    let dev = Dev::start().await;
    let classes = ["--priority-class", "bulk=3650d", "--priority-class", "urgent=-1d", "--priority-class-key", "tier"];
    dev.ok(&[&["queue", "create", "q"][..], &classes].concat()).await;
    let described = dev.ok(&["queue", "describe", "q"]).await;
    let expected = json!({"offsets_ms": {"bulk": 315_360_000_000_u64, "urgent": -86_400_000}, "override_key": "tier"});
    assert_eq!(described["config"]["priority_classes"], expected);
    assert!(dev.show(&["queue", "describe", "q"]).await.contains("urgent -1day, bulk +3650days, overridden by tier"));

    dev.ok(&["msg", "enqueue", "q", "--id", "bulk", "--priority-class", "bulk"]).await;
    dev.ok(&["msg", "enqueue", "q", "--id", "tier", "--priority", "9223372036854775807", "--meta", "tier=urgent"])
        .await;
    let line = "{\"id\": \"line\", \"priority_class\": \"urgent\"}\n";
    assert_eq!(dev.call_with(&["msg", "enqueue", "q", "--file", "-"], line).await.code, Some(0));
    let order = dev.call(&["msg", "ls", "q"]).await.json();
    let ids: Vec<&Value> = order.iter().map(|message| &message["id"]).collect();
    assert_eq!(ids, ["tier", "line", "bulk"]);
    let message = dev.ok(&["msg", "get", "q", "tier"]).await;
    let enqueued_at_ms = message["enqueued_at_ms"].as_i64().expect("a time");
    assert_eq!(message["priority"].as_i64(), Some(enqueued_at_ms - 86_400_000));
    assert_eq!(message["priority_class"], "urgent");
    let refused = dev.call(&["msg", "enqueue", "q", "--priority-class", "gold"]).await;
    assert!(refused.code == Some(1) && refused.stderr.contains("bulk, urgent"), "{refused:?}");
}
