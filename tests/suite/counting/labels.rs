//! The source and the item key of adds (N20) through servers: gRPC, HTTP and the command line.

use super::house::House;
use super::http::{Http, fault};
use super::now_ms;
use crate::system::program::{command, run};
use serde_json::{Value, json};
use std::time::Duration;
use tallystone_client::{
    AuditGroup, AuditGrouping, CounterClient, CounterType, ExactTo, IdempotencyToken, NamespaceConfig, NewAdd, NewClear,
};

const NS: &str = "labels";

/// A namespace that is rolled up soon, through HTTP and clients.
async fn house() -> Http {
    let http = Http::of(House::with_rollups().await);
    let config = NamespaceConfig { accept_limit_ms: Some(1_000), coalesce_ms: Some(0), ..NamespaceConfig::default() };
    http.house.put(NS, config).await;
    http
}

/// Waits until every add up to now is rolled up.
async fn rolled_up(client: &CounterClient) -> i64 {
    let to = ExactTo::now().wait(Duration::from_secs(30));
    client.get_exact(NS, "a/b c", to).await.expect("a count").count
}

fn group(key: &str, adds: u64, sum: i64) -> AuditGroup {
    AuditGroup { key: key.to_owned(), adds, sum }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n20_every_call_that_adds_keeps_labels_and_audits_group_by_them() {
    let http = house().await;
    let [one, other] = &http.house.clients[..] else { panic!("two servers") };
    let add = |delta| NewAdd::new("a/b c", delta);
    // Behind the adds that follow, whatever the clock shows.
    let before = |token: &str, ms| IdempotencyToken::new(token, now_ms() - ms);
    let gone = add(1).source("gone").event_item_key("gone").token(before("gone", 20));
    one.add(NS, gone).await.expect("an add");
    one.clear(NS, NewClear::new("a/b c").token(before("clear", 10))).await.expect("a clear");
    let first = add(5).source("eu").event_item_key("k1").token(IdempotencyToken::new("first", now_ms()));
    one.add(NS, first.clone()).await.expect("an add");
    let batch = vec![add(7).source("us"), add(-9).event_item_key("k1"), add(100)];
    assert!(other.add_many(NS, batch).await.expect("adds").iter().all(Result::is_ok));
    other.add_and_get(NS, add(11).source("eu")).await.expect("an add");
    let batch = vec![add(13).source("eu").event_item_key("k2"), add(1).source("s".repeat(65))];
    let answers = other.add_and_get_many(NS, batch).await.expect("adds");
    let refused = answers[1].as_ref().expect_err("it is too long");
    assert!(answers[0].is_ok() && refused.field.as_deref() == Some("adds[1].source"), "{refused:?}");
    assert!(one.add(NS, first.clone()).await.expect("a retry").duplicate);
    let conflict = one.add(NS, first.source("us")).await.expect_err("it has another source");
    assert_eq!(conflict.refused().expect("an answer").reason, "TOKEN_CONFLICT");

    assert_eq!(rolled_up(one).await, 127);
    let (audit, by_source) = other.audit_by(NS, "a/b c", AuditGrouping::Source).await.expect("an audit");
    assert!(audit.agrees && audit.events == 8, "{audit:?}");
    assert_eq!(by_source, [group("", 2, 91), group("eu", 3, 29), group("us", 1, 7)]);
    let (_, by_item) = one.audit_by(NS, "a/b c", AuditGrouping::EventItemKey).await.expect("an audit");
    assert_eq!(by_item, [group("", 3, 118), group("k2", 1, 13), group("k1", 2, -4)]);
    let events = one.list_events(NS, "a/b c", 0, 0, 100, "").await.expect("events").items;
    let of = |delta| events.iter().find(|event| event.delta == delta).expect("an event");
    assert_eq!((of(13).source.as_str(), of(13).event_item_key.as_str()), ("eu", "k2"));
    assert_eq!((of(100).source.as_str(), of(100).event_item_key.as_str()), ("", ""));
    let clear = events.iter().find(|event| event.clear).expect("the clear");
    assert_eq!((clear.source.as_str(), clear.event_item_key.as_str()), ("", ""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n20_http_and_the_command_line_take_labels_and_show_them() {
    let http = house().await;
    let url = http.house.urls[0].clone();
    let body = json!({"namespace": NS, "counter": "a/b c", "delta": 5, "source": "eu", "event_item_key": "k1"});
    http.ok("/v1/add_count", body.clone()).await;
    let item = json!({"counter": "a/b c", "delta": 2, "source": "us"});
    http.ok("/v1/add_counts", json!({"namespace": NS, "adds": [item]})).await;
    for (field, bad) in [("source", "x".repeat(65)), ("event_item_key", "a\nb".to_owned())] {
        let mut body = body.clone();
        body[field] = json!(bad);
        let (status, answer) = http.post("/v1/add_count", &body).await;
        assert_eq!((status, fault(&answer)), (400, ("INVALID_ARGUMENT", "INVALID_ARGUMENT", field)));
    }
    let clear = json!({"namespace": NS, "counter": "a/b c", "source": "eu"});
    assert_eq!(http.post("/v1/clear_count", &clear).await.0, 400, "a clear has no source");

    let tallystone = async |line: &[&str], stdin: &str| {
        let start = ["counter", line[0], "--counters", &url, "--namespace", NS];
        run(command(&[&start[..], &line[1..]].concat()), stdin).await
    };
    let added = tallystone(&["add", "a/b c", "11", "--source", "eu", "--item-key", "k2"], "").await;
    assert_eq!(added.code, Some(0), "{added:?}");
    let line = json!({"counter": "a/b c", "delta": 100, "source": "us", "event_item_key": "k2"}).to_string();
    let added = tallystone(&["add", "-"], &line).await;
    assert_eq!(added.code, Some(0), "{added:?}");
    let refused = tallystone(&["add", "a/b c", "--source", &"x".repeat(65)], "").await;
    assert!(refused.code != Some(0) && refused.stderr.contains("65 bytes"), "{refused:?}");
    for flag in ["--source", "--item-key"] {
        let usage = tallystone(&["add", "-", flag, "x"], "").await;
        assert!(usage.code == Some(2) && usage.stderr.contains("--item-key"), "{usage:?}");
    }

    let listed = tallystone(&["events", "a/b c"], "").await;
    assert!(["SOURCE", "ITEM KEY", "k1", "us"].iter().all(|text| listed.stdout.contains(text)), "{listed:?}");
    let lines: Vec<Value> = tallystone(&["events", "a/b c", "--json"], "").await.json();
    let of = |delta| lines.iter().find(|line| line["delta"] == delta).expect("an event");
    assert_eq!((&of(11)["source"], &of(11)["event_item_key"]), (&json!("eu"), &json!("k2")));
    assert_eq!((&of(2)["source"], &of(2)["event_item_key"]), (&json!("us"), &Value::Null));
    let listed = http.ok("/v1/list_events", json!({"namespace": NS, "counter": "a/b c"})).await;
    let events = listed["events"].as_array().expect("events");
    assert!(events.iter().any(|event| event["source"] == "eu" && event["event_item_key"] == "k1"), "{listed}");

    assert_eq!(rolled_up(&http.house.clients[1]).await, 118);
    let audit = tallystone(&["audit", "a/b c", "--by", "source"], "").await;
    assert!(audit.code == Some(0) && audit.stdout.contains("agrees"), "{audit:?}");
    let row = |text: &str| audit.stdout.lines().any(|line| line.split_whitespace().eq(text.split(' ')));
    assert!(row("a/b c eu 2 16") && row("a/b c us 2 102"), "{audit:?}");
    let groups = tallystone(&["audit", "a/b c", "--by", "item", "--json"], "").await.json().remove(0)["groups"].clone();
    let expected = json!([
        {"key": "k2", "adds": 2, "sum": 111},
        {"key": "k1", "adds": 1, "sum": 5},
        {"key": "", "adds": 1, "sum": 2},
    ]);
    assert_eq!(groups, expected);
    let plain = tallystone(&["audit", "a/b c", "--json"], "").await.json().remove(0);
    assert_eq!(plain["groups"], Value::Null, "{plain}");

    let audit = json!({"namespace": NS, "counter": "a/b c", "group_by": "SOURCE"});
    let found = http.ok("/v1/audit_counter?int64=string", audit).await;
    let expected = json!([{"key": "eu", "adds": "2", "sum": "16"}, {"key": "us", "adds": "2", "sum": "102"}]);
    assert_eq!(found["groups"], expected, "{found}");
    let (status, answer) =
        http.post("/v1/audit_counter", &json!({"namespace": NS, "counter": "c", "group_by": "x"})).await;
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("INVALID_ARGUMENT")), "{answer}");
}

/// A namespace without events has nothing to keep labels with, nor a token.
#[tokio::test]
async fn n20_best_effort_adds_count_without_their_labels() {
    let house = House::without_rollups().await;
    let config = NamespaceConfig { counter_type: Some(CounterType::BestEffort), ..NamespaceConfig::default() };
    house.put(NS, config).await;
    let client = &house.clients[0];
    client.add(NS, NewAdd::new("c", 3).source("eu").event_item_key("k")).await.expect("an add");
    assert_eq!(client.get(NS, "c").await.expect("a count").count, 3);
    let refused = client.add(NS, NewAdd::new("c", 3).source("e\n")).await.expect_err("it is malformed");
    assert_eq!(refused.refused().expect("an answer").reason, "INVALID_ARGUMENT");
}
