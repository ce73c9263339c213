//! An index that programs of an earlier version wrote: all messages in one index, transitions by day.

use super::*;
use elasticsearch::http::headers::{CONTENT_TYPE, HeaderValue};
use serde_json::json;
use tallystone_indexer::{DepthQuery, Queues, Trace, TraceQuery};

const HOUR_MS: u64 = 3_600_000;

fn number(text: &Value) -> u64 {
    text.as_u64().expect("a number")
}

/// Sends a bulk request as those programs do. Returns the status of each write, and the reason of the first error.
async fn bulk(indices: &TestIndices, writes: &[(&str, &str, Value)]) -> (Vec<u64>, String) {
    let mut lines = String::new();
    for (index, id, document) in writes {
        let target = json!({ "_index": format!("{}-{index}", indices.prefix), "_id": id });
        let action = match *index {
            "current" => {
                let versioned = json!({ "_index": target["_index"], "_id": id,
                    "version": document["version"], "version_type": "external_gte" });
                json!({ "index": versioned })
            }
            _ => json!({ "create": target }),
        };
        lines += &format!("{action}\n{document}\n");
    }
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    let sent =
        indices.raw.send(Method::Post, "_bulk", headers, None::<&()>, Some(lines), None).await.expect("a response");
    let reply: Value = serde_json::from_str(&sent.text().await.expect("a body")).expect("JSON");
    let outcomes: Vec<&Value> = reply["items"]
        .as_array()
        .expect("items")
        .iter()
        .flat_map(|item| item.as_object().expect("one").values())
        .collect();
    let reasons = outcomes.iter().find_map(|outcome| outcome["error"]["reason"].as_str());
    (outcomes.iter().map(|outcome| number(&outcome["status"])).collect(), reasons.unwrap_or_default().to_owned())
}

/// A message of version 1 as those programs wrote it.
fn message(sequence: u64, version: u32, gone: bool) -> Value {
    json!({ "queue": "q", "shard": 0, "id": format!("m{sequence}"), "sequence": sequence, "state": "pending", "gone": gone,
        "version": version, "priority": 5, "metadata_pairs": ["carrier\u{1f}UA"], "metadata": { "carrier": "UA" },
        "attempts": 0, "fence": 0, "worker": "", "reason": "", "enqueued_at_ms": NOON_MS, "since_ms": NOON_MS,
        "changed_at_ms": NOON_MS, "due_ms": 0, "coalesced": false })
}

fn transition(sequence: u64, version: u32) -> Value {
    json!({ "queue": "q", "shard": 0, "id": format!("m{sequence}"), "sequence": sequence, "version": version,
        "to": "pending", "entered": "pending", "by": "enqueue", "at_ms": NOON_MS, "spent_ms": 0, "worker": "", "fence": 0,
        "attempts": 0, "reason": "", "due_ms": 0, "priority": 5 })
}

/// The indices of those programs: their templates, and two messages, one of which is gone.
async fn earlier(test: &str) -> TestIndices {
    let indices = TestIndices::new(test).await;
    let prefix = &indices.prefix;
    let fields = json!({
        "queue": { "type": "keyword" }, "shard": { "type": "long" }, "id": { "type": "keyword" },
        "sequence": { "type": "long" }, "state": { "type": "keyword" }, "gone": { "type": "boolean" },
        "version": { "type": "long" }, "metadata_pairs": { "type": "keyword" }, "at_ms": { "type": "long" },
        "metadata": { "type": "object", "enabled": false }, "worker": { "type": "keyword" }, "priority": { "type": "long" },
        "enqueued_at_ms": { "type": "long" }, "changed_at_ms": { "type": "long" }, "payload": { "type": "binary" },
    });
    for (kind, pattern) in [("current", "current"), ("payload", "payload"), ("historic", "historic-*")] {
        let mappings = json!({ "dynamic": false, "_meta": { "version": 1 }, "properties": fields });
        let settings = json!({ "number_of_replicas": 0 });
        let template = json!({ "index_patterns": [format!("{prefix}-{pattern}")], "priority": 500, "version": 1,
            "template": { "mappings": mappings, "settings": settings } });
        indices.call(Method::Put, &format!("_index_template/{prefix}-{kind}"), Some(template)).await;
    }
    let (statuses, why) = bulk(
        &indices,
        &[
            ("current", "q/0/1", message(1, 1, false)),
            ("current", "q/0/2", message(2, 1, true)),
            ("historic-2026.11.20", "q/0/1/1", transition(1, 1)),
            ("historic-2026.11.20", "q/0/2/1", transition(2, 1)),
            ("payload", "q/0/1", json!({ "payload": "Bw==" })),
        ],
    )
    .await;
    assert_eq!((statuses, why.as_str()), (vec![201; 5], ""));
    indices
}

fn in_hour(hour: u64, sequence: u64, version: u32) -> Recorded {
    changed(event(&format!("m{sequence}"), sequence, version), |event| {
        event.enqueued_at_ms += hour * HOUR_MS;
        event.at_ms += hour * HOUR_MS;
    })
}

async fn trace(store: &Elastic, id: &str) -> Trace {
    let (queue, id) = (QueueName::parse("queue", "q").expect("a queue"), MessageId::parse("id", id).expect("an id"));
    store.trace(&TraceQuery { queue, id, sequence: None, limit: 10, after: None }).await.expect("a trace")
}

#[tokio::test]
async fn q19_an_index_of_an_earlier_version_is_taken_over() {
    let indices = earlier("earlier").await;
    let store = indices.store();
    // A repeated event, the next one of that message, a new message of the same hour, and one of the next hour.
    record(&store, &[in_hour(0, 1, 1), in_hour(0, 1, 2), in_hour(0, 3, 1), in_hour(1, 4, 1)]).await;
    record(&indices.store(), &[in_hour(1, 4, 2), in_hour(0, 3, 2)]).await;
    let names = indices.names().await.join(" ");
    let transitions = "historic-2026.11.20:q/0/1/1 historic-2026.11.20:q/0/1/2 historic-2026.11.20:q/0/2/1 \
         historic-2026.11.20:q/0/3/1 historic-2026.11.20:q/0/3/2 historic-2026.11.20:q/0/4/1 historic-2026.11.20:q/0/4/2";
    let messages = "current:q/0/1 current:q/0/2 current:q/0/3 current-2026.11.20:q/0/4";
    assert_eq!(names, format!("{messages} {transitions} payload:q/0/1"));
    store.advance(ONLY, NOON_MS).await.expect("visible");
    let found: Vec<_> = all(&store).await.into_iter().map(|message| (message.id, message.version)).collect();
    let found: Vec<(&str, u32)> = found.iter().map(|(id, version)| (id.as_str(), *version)).collect();
    assert_eq!(found, [("m4", 2), ("m3", 2), ("m2", 1), ("m1", 2)]);
    assert_eq!(trace(&store, "m1").await.message.and_then(|message| message.payload).as_deref(), Some(&[7][..]));
    assert_eq!(trace(&store, "m1").await.transitions.len(), 2);
    let queue = QueueName::parse("queue", "q").expect("a queue");
    let depth = store.depth(&DepthQuery::of(Queues::One(queue))).await.expect("a depth");
    assert_eq!(depth.iter().sum::<u64>(), 3, "one is gone");
    indices.remove().await;
}

#[tokio::test]
async fn q19_a_program_of_an_earlier_version_cannot_write_next_to_the_new_one() {
    let indices = earlier("fenced").await;
    let store = indices.store();
    store.prepare().await.expect("taken over");
    let (statuses, why) = bulk(&indices, &[("current", "q/0/9", message(9, 1, false))]).await;
    assert_eq!(statuses, [400]);
    // Those programs wait when they read this, and write again.
    assert!(why.contains("pipeline with id [stop-the-indexers-of-the-earlier-version] does not exist"), "{why}");
    record(&store, &[in_hour(0, 9, 1)]).await;
    record(&indices.store(), &[in_hour(0, 9, 2)]).await;
    assert_eq!(indices.names().await.iter().filter(|name| name.ends_with(":q/0/9")).count(), 1);
    indices.remove().await;
}

#[tokio::test]
async fn q19_gone_messages_of_an_earlier_version_are_removed_one_by_one() {
    let indices = earlier("aged").await;
    let store = Elastic::new(ElasticOptions { retention_ms: DAY_MS, ..indices.options() }).expect("good options");
    store.prepare().await.expect("taken over");
    store.advance(ONLY, NOON_MS).await.expect("visible");
    while store.prune(NOON_MS + 5 * DAY_MS).await.expect("pruned") {}
    assert_eq!(indices.names().await, ["current:q/0/1", "payload:q/0/1"]);
    indices.remove().await;
}
