//! The highest counts (N16), through servers: gRPC, HTTP and the command line.

use super::house::{House, until};
use super::http::{Http, fault};
use super::machines::listed;
use crate::system::program::{command, run};
use reqwest::Method;
use serde_json::json;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use tallystone_client::{Code, CounterClient, CounterType, NamespaceConfig, NewAdd, NewClear, TopCounters};
use tallystone_proto::counter::v1::ListTopCountersRequest;

const NS: &str = "top";
/// Enough that a walk has several steps in each shard.
const COUNTERS: i64 = 6_000;

/// A batch of 1,000 adds may take a second on a busy machine.
fn quick() -> NamespaceConfig {
    NamespaceConfig { accept_limit_ms: Some(5_000), coalesce_ms: Some(0), ..NamespaceConfig::default() }
}

fn best_effort() -> NamespaceConfig {
    NamespaceConfig { counter_type: Some(CounterType::BestEffort), ..NamespaceConfig::default() }
}

async fn add(client: &CounterClient, namespace: &str, adds: impl IntoIterator<Item = (String, i64)>) {
    let adds: Vec<NewAdd> = adds.into_iter().map(|(counter, delta)| NewAdd::new(counter, delta)).collect();
    for adds in adds.chunks(1_000) {
        let added = client.add_many(namespace, adds.to_vec()).await.expect("a batch");
        assert!(added.iter().all(Result::is_ok), "{added:?}");
    }
}

/// Names and counts.
fn shown(top: &TopCounters) -> Vec<(&str, i64)> {
    top.counters.iter().map(|entry| (entry.counter.as_str(), entry.count)).collect()
}

/// The highest of these, in order.
fn highest<'a>(counts: &'a BTreeMap<String, i64>, prefix: &str, limit: usize) -> Vec<(&'a str, i64)> {
    let all = counts.iter().filter(|(counter, _)| counter.starts_with(prefix));
    let mut all: Vec<(&str, i64)> = all.map(|(counter, count)| (counter.as_str(), *count)).collect();
    all.sort_by_key(|(counter, count)| (Reverse(*count), *counter));
    all.truncate(limit);
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n16_the_top_counters_are_those_of_the_whole_list() {
    let house = House::with_rollups().await;
    house.put(NS, quick()).await;
    let client = &house.clients[0];
    // Some counts are equal, and some are negative.
    let counts: BTreeMap<String, i64> =
        (0..COUNTERS).map(|it| (format!("{}/{it}", it % 3), it * 7_919 % 2_003 - 1_000)).collect();
    add(client, NS, counts.clone()).await;
    let rolled_up = async || {
        let found = listed(client, NS).await;
        found.into_values().filter(|entry| entry.exact_to_ms > 0 && entry.count == counts[&entry.counter]).count()
    };
    until(rolled_up, |rolled_up| *rolled_up == counts.len()).await;
    for (prefix, limit, expected) in
        [("", 0, 100), ("", 1, 1), ("1/", 1_000, 1_000), ("2/59", 1_000, 1_000), ("3", 5, 5)]
    {
        let top = house.clients[1].top(NS, prefix, limit).await.expect("a list");
        assert_eq!(shown(&top), highest(&counts, prefix, expected), "'{prefix}' {limit}");
        assert!(0 < top.read_from_ms && top.read_from_ms <= top.read_to_ms, "{top:?}");
        assert!(top.counters.iter().all(|entry| entry.exact_to_ms > 0), "{top:?}");
    }
    // A change is in a later list, through every server; what was deleted is in none.
    let (first, second) = ("0/3".to_owned(), highest(&counts, "", 1)[0].0.to_owned());
    add(client, NS, [(first.clone(), 1_000_000)]).await;
    client.delete(NS, NewClear::new(&second)).await.expect("a deletion");
    let mut changed = counts.clone();
    *changed.get_mut(&first).expect("a counter") += 1_000_000;
    changed.remove(&second);
    for client in &house.clients {
        let read = async || client.top(NS, "", 50).await.expect("a list");
        until(read, |top| shown(top) == highest(&changed, "", 50)).await;
    }
}

#[tokio::test]
async fn n16_best_effort_counters_have_a_top_and_bad_requests_none() {
    let house = House::without_rollups().await;
    house.put(NS, best_effort()).await;
    house.put("none", quick()).await;
    let client = &house.clients[0];
    add(client, NS, [("a".to_owned(), 3), ("b".to_owned(), -3), ("ac".to_owned(), 5)]).await;
    let top = client.top(NS, "", 0).await.expect("a list");
    assert_eq!(shown(&top), [("ac", 5), ("a", 3), ("b", -3)]);
    assert_eq!(shown(&client.top(NS, "a", 1).await.expect("a list")), [("ac", 5)]);
    // Without a rollup, a counter has no count yet.
    add(client, "none", [("a".to_owned(), 3)]).await;
    assert_eq!(client.top("none", "", 0).await.expect("a list").counters, []);
    let long = "a".repeat(2_000);
    let invalid = (Code::InvalidArgument, "INVALID_ARGUMENT", Some("limit"));
    let bad_prefix = (Code::InvalidArgument, "INVALID_ARGUMENT", Some("prefix"));
    for (namespace, prefix, limit, expected) in [
        (NS, "", 1_001, invalid),
        (NS, "\n", 1, bad_prefix),
        (NS, &long, 1, bad_prefix),
        ("nowhere", "", 1, (Code::NotFound, "NAMESPACE_NOT_FOUND", None)),
    ] {
        let error = client.top(namespace, prefix, limit).await.expect_err("no list");
        let refused = error.refused().expect("an answer");
        assert_eq!((refused.code, refused.reason.as_str(), refused.field.as_deref()), expected, "{prefix} {limit}");
    }
    let mut wire = house.wire(1).await;
    let request = ListTopCountersRequest { namespace: NS.to_owned(), prefix: String::new(), limit: -1 };
    let refused = wire.counters.list_top_counters(request).await.expect_err("no list");
    assert_eq!(refused.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn n16_results_of_walks_are_used_again_and_one_namespace_does_not_take_those_of_others() {
    let house = House::without_rollups().await;
    house.put(NS, best_effort()).await;
    house.put("other", best_effort()).await;
    let client = &house.clients[0];
    add(client, NS, [("a".to_owned(), 1)]).await;
    add(client, "other", [("b".to_owned(), 2)]).await;
    // Each list of another prefix is a walk, and its result stays for a second at least.
    let all = (0..200).map(async |number| client.top(NS, &format!("a{number}"), 0).await);
    let (listed, refused): (Vec<_>, Vec<_>) = futures::future::join_all(all).await.into_iter().partition(Result::is_ok);
    assert!(listed.len() >= 8 && !refused.is_empty(), "{} listed, {} refused", listed.len(), refused.len());
    let other = client.top("other", "", 0).await.expect("the list of another namespace");
    assert_eq!(shown(&other), [("b", 2)]);
    for refused in refused {
        let refused = refused.expect_err("refused");
        let refused = refused.refused().expect("an answer");
        assert_eq!((refused.code, refused.reason.as_str()), (Code::ResourceExhausted, "OVERLOADED"));
    }
    // Later, new lists are accepted again.
    let read = async || client.top(NS, "a", 0).await;
    let top = until(read, Result::is_ok).await.expect("a list");
    assert_eq!(shown(&top), [("a", 1)]);
    // Callers together cause one walk.
    let walks = house.calls("scan").await + house.calls("hscan").await;
    let together: Vec<_> = (0..50).map(|_| client.top(NS, "together", 0)).collect();
    for top in futures::future::join_all(together).await {
        assert_eq!(top.expect("a list").counters, []);
    }
    let walked = house.calls("scan").await + house.calls("hscan").await - walks;
    assert!((1..50).contains(&walked), "{walked} calls of Redis");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n16_http_and_the_command_line_list_the_top() {
    let http = Http::of(House::without_rollups().await);
    http.house.put(NS, best_effort()).await;
    add(&http.house.clients[1], NS, (0..30).map(|it| (format!("c {it}"), it * 1_000))).await;
    let list =
        async |body: serde_json::Value| http.call(Method::POST, "/v1/list_top_counters", &body.to_string()).await;
    let (status, found) = list(json!({"namespace": NS, "prefix": "c 1", "limit": "2"})).await;
    assert_eq!(status, 200, "{found}");
    let counts = found["counters"].as_array().expect("a list").iter().map(|it| (&it["counter"], &it["count"]));
    let expected = [(&json!("c 19"), &json!(19_000)), (&json!("c 18"), &json!(18_000))];
    assert_eq!(counts.collect::<Vec<_>>(), expected);
    assert!(found["read_from_ms"].as_i64() <= found["read_to_ms"].as_i64(), "{found}");
    for (body, field) in
        [(json!({"namespace": NS, "limit": 1_001}), "limit"), (json!({"namespace": NS, "prefix": "\n"}), "prefix")]
    {
        let (status, refused) = list(body).await;
        assert_eq!((status, fault(&refused).2), (400, field), "{refused}");
    }
    let verb = ["counter", "top", "--counters", &http.house.urls[0], "--namespace"];
    let text = run(command(&[&verb[..], &[NS]].concat()), "").await;
    assert!(text.stdout.contains("COUNTER") && text.stdout.contains("29,000"), "{text:?}");
    assert_eq!(text.stdout.matches("c ").count(), 20, "{text:?}");
    assert!(text.stdout.contains("counts from "), "{text:?}");
    let lines = run(command(&[&verb[..], &[NS, "--json", "--prefix", "c 2", "--limit", "3"]].concat()), "").await;
    let names: Vec<String> =
        lines.json().iter().map(|line| line["counter"].as_str().expect("a name").to_owned()).collect();
    assert_eq!(names, ["c 29", "c 28", "c 27"]);
    http.house.put("empty", quick()).await;
    let empty = run(command(&[&verb[..], &["empty"]].concat()), "").await;
    assert!(empty.stdout.contains("has had a rollup"), "{empty:?}");
    let bad = run(command(&[&verb[..], &[NS, "--limit", "0"]].concat()), "").await;
    assert!(bad.code == Some(2) && bad.stderr.contains("--limit"), "{bad:?}");
}
