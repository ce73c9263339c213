//! `tallystone queue …` and `tallystone check`.

use super::dev::Dev;
use super::program::until;
use tallystone_client::{Client, Dequeue, NewMessage, QueueConfig};

#[tokio::test]
async fn queues_are_created_shown_changed_and_deleted() {
    let dev = Dev::start().await;
    let create = ["queue", "create", "flights", "--exclusive", "tail", "--lease", "5s", "--max-attempts", "3"];
    let create = [
        &create[..],
        &["--retention", "1h", "--index", "origin,carrier", "--backoff", "fixed", "--backoff-base", "2s"],
    ]
    .concat();
    let created = dev.ok(&create).await;
    let config = &created["config"];
    assert_eq!(config["queue_type"]["exclusive"]["key"], "tail");
    assert_eq!(config["lease_ms"], 5_000);
    assert_eq!(config["max_attempts"], 3);
    assert_eq!(config["terminal_retention_ms"], 3_600_000);
    assert_eq!(config["indexes"], serde_json::json!([["carrier", "origin"]]));
    assert_eq!(config["retry_backoff"]["base_ms"], 2_000);
    assert_eq!(dev.ok(&create).await, created, "a repetition returns the same");
    dev.refused(&["queue", "create", "flights"], "QUEUE_EXISTS").await;

    dev.ok(&["queue", "create", "other"]).await;
    let list = dev.call(&["queue", "ls"]).await.json();
    let names: Vec<&str> = list.iter().filter_map(|queue| queue["name"].as_str()).collect();
    assert_eq!(names, ["flights", "other"], "without the rollup queue of `dev`");
    assert_eq!(dev.call(&["queue", "ls", "fl"]).await.json().len(), 1);
    let table = dev.show(&["queue", "ls"]).await;
    assert!(table.contains("NAME") && table.contains("exclusive by tail"), "{table}");

    let resharded = dev.ok(&["queue", "update", "other", "--shards", "3"]).await;
    assert_eq!((&resharded["config"]["shards"], &resharded["shards_draining"]), (&3.into(), &1.into()));
    let described = dev.show(&["queue", "describe", "other"]).await;
    assert!(described.contains("simple, in 3 shards; an earlier one is not empty yet"), "{described}");
    let table = dev.show(&["queue", "ls"]).await;
    assert!(table.contains("resharding"), "{table}");
    dev.refused(&["queue", "update", "other", "--shards", "4"], "INVALID_ARGUMENT").await;

    let updated = dev.ok(&["queue", "update", "flights", "--lease", "7s", "--max-depth", "2"]).await;
    assert_eq!((&updated["config"]["lease_ms"], &updated["revision"]), (&7_000.into(), &2.into()));
    assert_eq!(dev.call(&["queue", "update", "flights"]).await.code, Some(2), "nothing to change");
    for id in ["a", "b"] {
        dev.ok(&["msg", "enqueue", "flights", "--id", id, "--meta", "tail=N1", "--meta", "origin=JFK"]).await;
    }
    dev.refused(&["msg", "enqueue", "flights", "--meta", "tail=N1"], "QUEUE_FULL").await;
    assert_eq!(dev.ok(&["queue", "describe", "flights"]).await["depth"]["pending"], 2);
    dev.ok(&["queue", "update", "flights", "--enqueue-blocked", "true"]).await;
    dev.refused(&["msg", "enqueue", "flights", "--meta", "tail=N1"], "ENQUEUE_BLOCKED").await;

    assert_eq!(dev.ok(&["queue", "pause", "flights"]).await["config"]["dequeue_blocked"], true);
    let table = dev.show(&["queue", "ls"]).await;
    assert!(table.contains("paused"), "{table}");
    let explained = dev.show(&["msg", "explain", "flights", "a"]).await;
    assert!(explained.contains("paused"), "{explained}");
    assert_eq!(dev.ok(&["queue", "resume", "flights"]).await["config"]["dequeue_blocked"], false);

    let checked = dev.call(&["check"]).await;
    assert_eq!(checked.code, Some(0), "{checked:?}");
    for report in checked.json() {
        assert_eq!(report["violations"], serde_json::json!([]));
    }
    let table = dev.show(&["check", "flights"]).await;
    assert!(table.contains("every invariant holds"), "{table}");

    dev.refused(&["queue", "delete", "flights"], "QUEUE_NOT_EMPTY").await;
    assert_eq!(dev.ok(&["queue", "purge", "flights"]).await["purged"], 2);
    dev.ok(&["queue", "delete", "flights"]).await;
    dev.ok(&["msg", "enqueue", "other", "--id", "x"]).await;
    dev.ok(&["queue", "delete", "other", "--force"]).await;
    assert_eq!(dev.call(&["queue", "ls", "o"]).await.stdout, "");
    dev.stop().await;
}

#[tokio::test]
async fn o1_the_list_of_queues_shows_how_old_the_oldest_message_and_the_oldest_lease_are() {
    let dev = Dev::start().await;
    let client = Client::connect(dev.url()).await.expect("a client");
    for queue in ["busy", "idle"] {
        client.create_queue(queue, QueueConfig::simple()).await.expect("a queue");
    }
    let messages = vec![NewMessage::new("a", ""), NewMessage::new("b", "")];
    client.enqueue("busy", messages).await.expect("an Enqueue");
    client.dequeue(Dequeue::new("busy")).await.expect("a lease");
    let list = async || dev.call(&["queue", "ls"]).await.json();
    // The table has tenths of a second.
    until("a lease of some age", async || list().await[0]["ages"]["oldest_lease_ms"].as_u64() >= Some(100)).await;
    let list = list().await;
    let ages = |number: usize| ["oldest_pending_ms", "oldest_lease_ms"].map(|age| list[number]["ages"][age].as_u64());
    let [pending_ms, lease_ms] = ages(0);
    assert!(pending_ms >= lease_ms && lease_ms >= Some(100), "{list:?}");
    assert_eq!(ages(1), [None, None], "{list:?}");

    let table = dev.show(&["queue", "ls"]).await;
    let lines: Vec<&str> = table.lines().collect();
    // A column of numbers ends where its name ends.
    let cell = |line: &str, name: &str| {
        let begin = lines[0].find(name).expect("a column");
        line.get(begin..begin + name.len()).unwrap_or_default().trim().to_owned()
    };
    let ages = |line: &str| ["OLDEST PENDING", "OLDEST LEASE"].map(|name| cell(line, name));
    let seconds = |age: &String| age.strip_suffix(" s").and_then(|age| age.parse::<f64>().ok()).expect("an age");
    let [pending, lease] = ages(lines[1]).each_ref().map(seconds);
    assert!(lines[1].starts_with("busy ") && pending >= lease && lease > 0.0, "{table}");
    assert!(lines[2].starts_with("idle ") && ages(lines[2]) == ["", ""], "{table}");
    dev.stop().await;
}

#[tokio::test]
async fn errors_have_hints() {
    let dev = Dev::start().await;
    dev.ok(&["queue", "create", "flights"]).await;
    dev.refused(&["queue", "describe", "fligths"], "QUEUE_NOT_FOUND").await;
    let ended = dev.call(&["queue", "describe", "fligths"]).await;
    assert!(ended.stderr.contains("did you mean 'flights'?"), "{ended:?}");
    dev.refused(&["queue", "create", "a b"], "INVALID_ARGUMENT").await;
    dev.refused(&["queue", "update", "flights", "--lease", "1ms"], "INVALID_ARGUMENT").await;
    dev.refused(&["msg", "get", "flights", "nothing"], "MESSAGE_NOT_FOUND").await;
    assert_eq!(dev.call(&["queue", "update", "flights", "--lease", "5"]).await.code, Some(2), "no unit");
    let url = dev.url().to_owned();
    dev.stop().await;
    let ended = super::program::run(super::program::command(&["--server", &url, "queue", "ls"]), "").await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stderr.contains("tallystone dev"), "the hint says how to start a server: {ended:?}");
}
