//! The feed of passed thresholds (N16), through servers: gRPC, HTTP and the command line.

use super::house::House;
use super::http::{Http, fault};
use crate::system::program::{Running, command, run};
use nix::sys::signal::Signal;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tallystone_client::{
    Code, CounterClient, CounterType, Crossing, CrossingDirection, Crossings, Error, ExactTo, NamespaceConfig, NewAdd,
    NewClear, NewRecount, Threshold,
};
use tallystone_proto::counter::v1::ListCrossingsRequest;
use tokio::time::Instant;

const NS: &str = "crossings";
const LONG: Duration = Duration::from_secs(30);

fn config(thresholds: &[(&str, i64)]) -> NamespaceConfig {
    let threshold = |(prefix, count): &(&str, i64)| Threshold { prefix: (*prefix).to_owned(), count: *count };
    NamespaceConfig {
        accept_limit_ms: Some(500),
        coalesce_ms: Some(0),
        thresholds: Some(thresholds.iter().map(threshold).collect()),
        ..NamespaceConfig::default()
    }
}

/// Adds, and waits until a rollup has counted it.
async fn count(client: &CounterClient, counter: &str, delta: i64) {
    let added = client.add(NS, NewAdd::new(counter, delta)).await.expect("an add");
    client.get_exact(NS, counter, ExactTo::after(added.event_time_ms).wait(LONG)).await.expect("a count");
}

async fn page(client: &CounterClient, after: &str, limit: u32) -> Crossings {
    client.crossings(NS, after, limit, Duration::ZERO).await.expect("a page")
}

/// A counter, a threshold, whether it was passed upwards, and the new count.
fn shown(crossings: &[Crossing]) -> Vec<(&str, i64, bool, i64)> {
    let is_up = |crossing: &Crossing| crossing.direction == CrossingDirection::Up;
    crossings.iter().map(|it| (it.counter.as_str(), it.threshold, is_up(it), it.count)).collect()
}

/// Of a load whose counts rise and fall around them.
pub(super) fn thresholds() -> Vec<Threshold> {
    [-1_000, -100, -10, -1, 0, 1, 10, 100, 1_000, 10_000, 100_000]
        .map(|count| Threshold { prefix: String::new(), count })
        .into()
}

/// Every counter began at 0 and was not deleted. So it passes a threshold upwards and downwards in turn, and its count says which of
/// the two was the last: a crossing that is missing, or is there twice, breaks this.
pub(super) async fn check_each_is_there_once(client: &CounterClient, namespace: &str, counts: &BTreeMap<String, i64>) {
    let (mut after, mut all) = (String::new(), Vec::new());
    loop {
        let found = client.crossings(namespace, &after, 100, Duration::ZERO).await.expect("a page");
        if found.crossings.is_empty() {
            break;
        }
        after = found.position;
        all.extend(found.crossings);
    }
    println!("{} crossings", all.len());
    let up = |is_up: bool| if is_up { CrossingDirection::Up } else { CrossingDirection::Down };
    for (counter, count) in counts {
        for threshold in thresholds().into_iter().map(|threshold| threshold.count) {
            let mut is_reached = 0 >= threshold;
            for crossing in all.iter().filter(|it| it.counter == *counter && it.threshold == threshold) {
                assert_eq!(crossing.direction, up(!is_reached), "{counter} {threshold}: {crossing:?}");
                is_reached = !is_reached;
                assert_eq!(is_reached, crossing.count >= threshold, "{crossing:?}");
            }
            assert_eq!(is_reached, *count >= threshold, "{counter} is {count}, and has passed {threshold}");
        }
    }
    let of_others = all.iter().find(|crossing| !counts.contains_key(&crossing.counter));
    assert_eq!(of_others, None);
}

fn reason(error: &Error) -> (Code, &str) {
    let refused = error.refused().unwrap_or_else(|| panic!("{error:?}"));
    (refused.code, refused.reason.as_str())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n16_each_crossing_is_listed_once_through_every_server() {
    let house = House::with_rollups().await;
    house.put(NS, config(&[("", 10), ("vip/", 5)])).await;
    let client = &house.clients[0];
    let begin = page(client, "now", 0).await;
    assert_eq!(begin.crossings, []);
    for (counter, delta) in [("a", 9), ("vip/b", 6), ("a", 1), ("vip/b", 100)] {
        count(client, counter, delta).await;
    }
    let cleared = client.clear(NS, NewClear::new("vip/b")).await.expect("a clear");
    client.get_exact(NS, "vip/b", ExactTo::after(cleared.event_time_ms).wait(LONG)).await.expect("a count");
    client.recount(NS, "a", NewRecount::of_count(-3, "a test")).await.expect("a recount");
    let expected = [
        ("vip/b", 5, true, 6),
        ("a", 10, true, 10),
        ("vip/b", 10, true, 106),
        ("vip/b", 10, false, 0),
        ("vip/b", 5, false, 0),
        ("a", 10, false, 7),
    ];
    let (mut after, mut all, mut via) = (begin.position.clone(), Vec::new(), 0);
    loop {
        let found = page(&house.clients[via % 2], &after, 1).await;
        assert!(found.complete_to_ms >= begin.complete_to_ms, "{found:?}");
        let Some(last) = found.crossings.last() else { break };
        assert!(last.committed_at_ms <= found.complete_to_ms && last.exact_to_ms < last.committed_at_ms, "{found:?}");
        (after, via) = (found.position, via + 1);
        all.extend(found.crossings);
    }
    assert_eq!(shown(&all), expected);
    assert_eq!(page(client, "", 1_000).await.crossings, all, "from the oldest on");
    assert_eq!(page(client, &begin.position, 0).await.crossings, all, "once more from a position before");
    // A deletion passes nothing, unless a rollup has counted its clear before. What follows begins at 0.
    count(client, "a", 20).await;
    client.delete(NS, NewClear::new("a")).await.expect("a deletion");
    count(client, "a", 12).await;
    let mut rest = page(client, &after, 0).await.crossings;
    rest.retain(|crossing| crossing.direction == CrossingDirection::Up);
    assert_eq!(shown(&rest), [("a", 10, true, 27), ("a", 10, true, 12)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n16_a_caller_waits_for_the_next_crossing() {
    let house = House::with_rollups().await;
    house.put(NS, config(&[("", 10)])).await;
    let [client, other] = [0, 1].map(|via: usize| house.clients[via].clone());
    let begin = page(&client, "now", 0).await;
    // The wait ends without one.
    let began = Instant::now();
    let nothing = client.crossings(NS, &begin.position, 0, Duration::from_millis(700)).await.expect("a page");
    assert!(began.elapsed() >= Duration::from_millis(700) && nothing.crossings.is_empty(), "{nothing:?}");
    assert!(nothing.complete_to_ms >= begin.complete_to_ms + 600, "it goes on: {nothing:?}");
    // It ends before the caller's deadline.
    let mut wire = house.wire(1).await;
    let (namespace, after) = (NS.to_owned(), nothing.position.clone());
    let mut request = tonic::Request::new(ListCrossingsRequest { namespace, after, limit: 0, wait_ms: 30_000 });
    request.set_timeout(Duration::from_secs(2));
    let answer = wire.counters.list_crossings(request).await.expect("an answer in time").into_inner();
    assert_eq!(answer.crossings, []);
    assert!(began.elapsed() < LONG);
    // One that was made through another server ends the wait.
    let waiting = tokio::spawn(async move { client.crossings(NS, "now", 0, LONG).await });
    while !waiting.is_finished() {
        count(&other, "c", 10).await;
        count(&other, "c", -10).await;
    }
    let found = waiting.await.expect("it ends").expect("a page");
    assert!(!found.crossings.is_empty(), "{found:?}");
}

#[tokio::test]
async fn n16_what_is_no_position_is_refused() {
    let house = House::without_rollups().await;
    house.put(NS, config(&[("", 10)])).await;
    house.put("other", config(&[])).await;
    let best_effort = NamespaceConfig { counter_type: Some(CounterType::BestEffort), ..NamespaceConfig::default() };
    house.put("best_effort", best_effort.clone()).await;
    let with = NamespaceConfig { thresholds: config(&[("", 1)]).thresholds, ..best_effort };
    let refused = house.clients[0].put_namespace("none", with).await.expect_err("it has no rollups");
    assert_eq!(refused.refused().expect("an answer").field.as_deref(), Some("thresholds"));
    let client = &house.clients[1];
    let position = page(client, "", 0).await.position;
    let invalid = (Code::InvalidArgument, "INVALID_ARGUMENT");
    let zero = Duration::ZERO;
    for (namespace, after, limit, wait, expected) in [
        ("other", position.as_str(), 0, zero, invalid),
        (NS, "end", 0, zero, invalid),
        (NS, &position[1..], 0, zero, invalid),
        (NS, &position, 1_001, zero, invalid),
        (NS, &position, 0, Duration::from_millis(30_001), invalid),
        ("best_effort", "", 0, zero, invalid),
        ("nowhere", "", 0, zero, (Code::NotFound, "NAMESPACE_NOT_FOUND")),
    ] {
        let error = client.crossings(namespace, after, limit, wait).await.expect_err("no answer");
        assert_eq!(reason(&error), expected, "{namespace} {after} {limit} {wait:?}");
    }
    let namespace = client.get_namespace(NS).await.expect("a namespace");
    client.delete_namespace(&namespace).await.expect("a deletion");
    house.put(NS, config(&[("", 10)])).await;
    for client in &house.clients {
        let error = client.crossings(NS, &position, 0, zero).await.expect_err("of a deleted namespace");
        assert_eq!(reason(&error), (Code::FailedPrecondition, "POSITION_EXPIRED"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n16_http_and_the_command_line_list_crossings() {
    let http = Http::of(House::with_rollups().await);
    let url = http.house.urls[0].clone();
    let thresholds = json!([{"count": "1000"}, {"prefix": "a", "count": -5}]);
    let body = json!({"thresholds": thresholds, "accept_limit_ms": 100, "coalesce_ms": 0}).to_string();
    let (status, put) = http.call(Method::PUT, &format!("/v1/namespaces/{NS}"), &body).await;
    let expected = json!([{"prefix": "", "count": 1_000}, {"prefix": "a", "count": -5}]);
    assert_eq!((status, &put["config"]["thresholds"]), (200, &expected), "{put}");
    let twice = json!({"thresholds": [{"count": 1}, {"count": 1}]}).to_string();
    let (status, refused) = http.call(Method::PUT, &format!("/v1/namespaces/{NS}"), &twice).await;
    assert_eq!((status, fault(&refused).2), (400, "thresholds"), "{refused}");
    let client = &http.house.clients[1];
    count(client, "a/b c", 1_204).await;
    count(client, "a/b c", -1_300).await;
    let get = async |query: &str| http.call(Method::GET, &format!("/v1/namespaces/{NS}/crossings{query}"), "").await;
    let (status, found) = get("?limit=1&wait_ms=30000&int64=string").await;
    assert_eq!(status, 200, "{found}");
    let first = &found["crossings"][0];
    assert_eq!((&first["direction"], &first["threshold"]), (&json!("UP"), &json!("1000")), "{found}");
    let position = found["position"].as_str().expect("a position");
    let (_, rest) = get(&format!("?after={position}")).await;
    let shown: Vec<(&Value, &Value)> =
        rest["crossings"].as_array().expect("a list").iter().map(|it| (&it["direction"], &it["threshold"])).collect();
    assert_eq!(shown, [(&json!("DOWN"), &json!(1_000)), (&json!("DOWN"), &json!(-5))], "{rest}");
    for (query, field) in [("?after=x", "after"), ("?limit=-1", "limit"), ("?wait_ms=x", "wait_ms"), ("?x=1", "query")]
    {
        let (status, refused) = get(query).await;
        assert_eq!((status, fault(&refused).2), (400, field), "{query}: {refused}");
    }

    let verb = ["counter", "crossings", "--counters", &url, "--namespace", NS];
    let text = run(command(&verb), "").await;
    assert!(text.stdout.contains("THRESHOLD") && text.stdout.contains("1,204  a/b c"), "{text:?}");
    assert!(text.stdout.contains("continue with --after"), "{text:?}");
    let lines = run(command(&[&verb[..], &["--json", "--after", position]].concat()), "").await;
    assert!(lines.stderr.contains("continue with --after"), "{lines:?}");
    let shown: Vec<i64> = lines.json().iter().map(|line| line["count"].as_i64().expect("a count")).collect();
    assert_eq!(shown, [-96, -96]);
    assert_eq!(lines.json()[0]["direction"], "down");
    let bad = run(command(&[&verb[..], &["--after", "x"]].concat()), "").await;
    assert!(bad.code == Some(1) && bad.stderr.contains("--after"), "{bad:?}");
    let last = rest["position"].as_str().expect("a position");
    let mut following = Running::start(command(&[&verb[..], &["--follow", "--json", "--after", last]].concat()));
    count(client, "a/b c", 95).await;
    let line: Value = serde_json::from_str(&following.line().await).expect("an object");
    assert_eq!((&line["direction"], &line["count"]), (&json!("up"), &json!(-1)));
    following.signal(Signal::SIGTERM);
    let remark = following.last_words().await;
    let (_, after) = remark.trim_end().split_once("--after ").unwrap_or_else(|| panic!("{remark}"));
    assert_eq!(page(client, after, 0).await.crossings, [], "all of it was printed");
    assert!(following.ended().await.success());
    let described = run(command(&["counter", "namespace", "get", "--counters", &url, NS]), "").await;
    assert!(described.stdout.contains("1,000; -5 of a*"), "{described:?}");
}
