//! `queue depth`: counts by metadata, priority and age over queues, as JSON.

use super::dev::Dev;
use super::program::SOON;
use serde_json::{Value, json};
use tallystone_client::{Client, NewMessage};

#[tokio::test]
async fn q20_depths_are_counted_over_queues_and_by_groups() {
    let dev = Dev::start().await;
    let client = Client::connect(dev.url()).await.expect("a client");
    let message =
        |id: &str, priority, carrier: &str| NewMessage::new(id, "").priority(priority).metadata("carrier", carrier);
    let queues = [
        ("flights/a", vec![message("1", -5, "UA"), message("2", 0, "AA")]),
        ("flights/b", vec![message("3", 5, "UA"), NewMessage::new("4", "").invisibility_ms(3_600_000)]),
        ("other", vec![message("5", 0, "UA")]),
    ];
    for (queue, messages) in queues {
        client.enqueue(queue, messages).await.expect("an Enqueue");
    }
    assert!(client.history_caught_up(SOON).await.expect("an answer"), "the index does not catch up");
    let depth = async |args: &[&str]| {
        let ended = dev.call(&[&["queue", "depth"], args].concat()).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let line = |line: &Value| (line["value"].clone(), line["invisible"].clone(), line["pending"].clone());
        ended.json().iter().map(line).collect::<Vec<_>>()
    };
    let line = |value: Value, invisible: u64, pending: u64| (value, json!(invisible), json!(pending));
    let all = |invisible, pending| line(Value::Null, invisible, pending);
    assert_eq!(depth(&["flights/a"]).await, [all(0, 2)]);
    assert_eq!(depth(&["--prefix", "flights/"]).await, [all(1, 3)]);
    let by_carrier = [line(json!("AA"), 0, 1), line(json!("UA"), 0, 2), all(1, 3)];
    assert_eq!(depth(&["--prefix", "flights/", "--group-by", "carrier"]).await, by_carrier);
    let by_queue =
        [line(json!("flights/a"), 0, 1), line(json!("flights/b"), 0, 1), line(json!("other"), 0, 1), all(0, 3)];
    assert_eq!(depth(&["--where", "carrier=UA", "--by-queue"]).await, by_queue);
    assert_eq!(depth(&["--where", "carrier=UA", "--priority-min", "-5", "--priority-max", "0"]).await, [all(0, 2)]);
    assert_eq!(depth(&["--prefix", "flights/", "--until", "1h"]).await, [all(0, 0)], "older than an hour");
    assert_eq!(depth(&["--prefix", "flights/", "--since", "1h"]).await, [all(1, 3)]);
    // A mistyped name is no idle queue; a deleted one is still in history.
    for verb in [
        &["queue", "depth", "flights/aa"][..],
        &["queue", "stats", "flights/aa"],
        &["msg", "search", "--queue", "flights/aa"],
    ] {
        dev.refused(verb, "QUEUE_NOT_FOUND").await;
        let refused = dev.call(verb).await;
        assert!(refused.stderr.contains("did you mean 'flights/a'?"), "{refused:?}");
    }
    dev.ok(&["queue", "create", "idle"]).await;
    assert_eq!(depth(&["idle"]).await, [all(0, 0)]);
    dev.ok(&["queue", "delete", "other", "--force"]).await;
    assert!(client.history_caught_up(SOON).await.expect("an answer"), "the index does not catch up");
    assert_eq!(depth(&["other"]).await, [all(0, 0)]);
    let refused = dev.call(&["queue", "depth", "--priority-min", "2", "--priority-max", "1"]).await;
    assert!(refused.code == Some(1) && refused.stderr.contains("priority"), "{refused:?}");
    dev.stop().await;
}
