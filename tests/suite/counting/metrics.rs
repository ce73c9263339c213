//! Metrics of adds: each counts once, whatever its outcome and however it was sent (N2, N3).

use super::house::until;
use super::machines::Machines;
use super::{lasting_address, now_ms};
use crate::crash::machines::Server;
use crate::system::program::metrics_page;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tallystone_client::{CounterClient, CounterType, IdempotencyToken, NamespaceConfig, NewAdd, NewClear};
use tallystone_tests::http_client;

const NS: &str = "ns";

/// One more server of counters, and the address of its metrics.
struct Measured {
    _machines: Machines,
    server: Server,
    metrics: String,
    http: reqwest::Client,
}

impl Measured {
    async fn start() -> Self {
        let machines = Machines::start(0).await;
        let metrics = lasting_address();
        let (redis, queue) = (machines.redis.url(), machines.queues[0].url());
        let args = ["counters", "--redis-url", &redis, "--server", &queue, "--metrics-listen", &metrics];
        let server = Server::start_as(&args).await;
        let http = http_client();
        Measured { _machines: machines, server, metrics, http }
    }

    /// What has counted so far: adds, duplicates, and refusals by their reason. (Each series is there from the start, as 0.)
    async fn seen(&self) -> BTreeMap<String, u64> {
        let page = metrics_page(&self.metrics).await;
        let sample = |line: &str| {
            let (name, value) = line.strip_prefix("tallystone_counter_")?.rsplit_once(' ')?;
            let name = match name.strip_prefix("refused_total{reason=\"") {
                Some(rest) => rest.strip_suffix("\"}")?,
                None => name.strip_suffix("s_total").filter(|name| ["add", "duplicate"].contains(name))?,
            };
            Some((name.to_owned(), value.parse().ok()?))
        };
        page.lines().filter_map(sample).filter(|(_, count)| *count > 0).collect()
    }

    async fn post(&self, path: &str, body: Value) {
        let request =
            self.http.post(format!("{}/v1/{path}", self.server.url())).header("content-type", "application/json");
        request.body(body.to_string()).send().await.expect("an answer");
    }
}

/// An add without the namespace: what is sent, and what of it counts.
fn cases() -> [(Value, &'static str); 8] {
    let token = |name: &str, time_ms: u64| json!({"token": name, "generation_time": time_ms});
    let now_ms = now_ms();
    [
        (json!({"counter": "c", "delta": 1, "token": token("t", now_ms)}), "add"),
        (json!({"counter": "c", "delta": 1, "token": token("t", now_ms)}), "duplicate"),
        (json!({"counter": "c", "delta": 2, "token": token("t", now_ms)}), "TOKEN_CONFLICT"),
        (json!({"counter": "c", "delta": 1, "token": token("old", now_ms - 60_000)}), "TOO_OLD"),
        (json!({"counter": "c", "delta": 1, "token": token("early", now_ms + 60_000)}), "TOO_EARLY"),
        (json!({"counter": "c", "delta": i64::MAX}), "OVERFLOW"),
        (json!({"counter": "c", "delta": 1, "token": token("expired", 1)}), "TOKEN_EXPIRED"),
        (json!({"counter": "", "delta": 1}), "INVALID_ARGUMENT"),
    ]
}

/// The same for the client of gRPC.
fn new_add(body: &Value) -> NewAdd {
    let add = NewAdd::new(body["counter"].as_str().expect("a counter"), body["delta"].as_i64().expect("a delta"));
    match &body["token"] {
        Value::Null => add,
        token => {
            let (name, time) = (token["token"].as_str().expect("a token"), &token["generation_time"]);
            add.token(IdempotencyToken::new(name, time.as_u64().expect("a time")))
        }
    }
}

/// In a separate counter.
fn of_counter(body: &Value, counter: &str) -> Value {
    let mut body = body.clone();
    if body["counter"] == "c" {
        body["counter"] = json!(counter);
    }
    body
}

#[tokio::test]
async fn every_add_and_every_refusal_counts_once() {
    let measured = Measured::start().await;
    let client = CounterClient::builder(measured.server.url()).connect().await.expect("a server that listens");
    let config = NamespaceConfig { counter_type: Some(CounterType::Accurate), ..NamespaceConfig::default() };
    client.put_namespace(NS, config).await.expect("a namespace");
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    let mut expect = |name: &str| *expected.entry(name.to_owned()).or_default() += 1;

    for (body, counts_as) in cases() {
        let mut of_http = of_counter(&body, "http");
        of_http["namespace"] = json!(NS);
        measured.post("add_count", of_http).await;
        let _refused_or_not = client.add(NS, new_add(&of_counter(&body, "grpc"))).await;
        (0..2).for_each(|_| expect(counts_as));
    }
    let all = |counter: &str| cases().map(|(body, _)| of_counter(&body, counter));
    measured.post("add_counts", json!({"namespace": NS, "adds": all("batch/http")})).await;
    let adds = all("batch/grpc").iter().map(new_add).collect();
    client.add_many(NS, adds).await.expect("a batch");
    cases().iter().chain(&cases()).for_each(|(_, counts_as)| expect(counts_as));

    // Calls that are refused as such.
    measured.post("add_count", json!({"namespace": "nowhere", "counter": "c", "delta": 1})).await;
    client.add("nowhere", NewAdd::new("c", 1)).await.expect_err("no namespace");
    measured.post("get_count", json!({"namespace": "nowhere", "counter": "c"})).await;
    (0..3).for_each(|_| expect("NAMESPACE_NOT_FOUND"));
    measured.post("add_count", json!({"namespace": "a b", "counter": "c", "delta": 1})).await;
    measured.post("add_count", json!({"namespace": NS})).await;
    client.get(NS, "").await.expect_err("no name");
    client.clear(NS, NewClear::new("")).await.expect_err("no name");
    client.list_events(NS, "c", 0, 0, 1_001, "").await.expect_err("too large a page");
    (0..5).for_each(|_| expect("INVALID_ARGUMENT"));
    client.clear(NS, NewClear::new("grpc")).await.expect("a clear");
    expect("add");
    assert_eq!(measured.seen().await, expected);
}
/// The events that wait for an archiver that does not come. The namespace is new, and its archive is no older than its first event.
#[tokio::test]
async fn n15_the_metrics_say_how_far_the_archive_is_behind() {
    let (machines, metrics) = (Machines::start(0).await, lasting_address());
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("archive.toml");
    let archive = format!("[archive]\nurl = \"file://{}/archive\"\ninterval_ms = 100\n", folder.path().display());
    std::fs::write(&config, archive).expect("a file");
    let (redis, queue) = (machines.redis.url(), machines.queues[0].url());
    let of_redis = ["counters", "--redis-url", &redis, "--server", &queue, "--metrics-listen", &metrics];
    let server = Server::start_as(&[&of_redis[..], &["--config", config.to_str().expect("text")]].concat()).await;
    let client = CounterClient::builder(server.url()).connect().await.expect("a server that listens");
    client.put_namespace(NS, NamespaceConfig::default()).await.expect("a namespace");
    let behind_s = async || {
        let series = format!("tallystone_archive_behind_seconds{{namespace=\"{NS}\"}} ");
        metrics_page(&metrics).await.lines().find_map(|line| line.strip_prefix(&series)?.parse::<f64>().ok())
    };
    until(&behind_s, |behind_s| *behind_s == Some(0.0)).await;
    client.add(NS, NewAdd::new("c", 1)).await.expect("an add");
    let behind_s = until(&behind_s, |behind_s| behind_s.is_some_and(|behind_s| behind_s >= 1.0)).await;
    assert!(behind_s.is_some_and(|behind_s| behind_s < 1_800.0), "{behind_s:?} s");
}
