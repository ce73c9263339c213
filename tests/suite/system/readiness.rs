//! O3: what `tallystone health --port` says of a process, and when a rollup worker, an indexer, a view counter and an
//! ingest process are ready. A view counter is ready without its log (V5).

use super::program::{self, Running, SOON};
use crate::crash::machines::{Redis, Server};
use crate::ingest::topics::{Topics, Written, now_ms};
use std::net::SocketAddr;
use std::time::Duration;
use tallystone_tests::{Network, TestElasticsearch, TestKafka, http_client, lasting_port};
use tokio::process::Command;
use tokio::time::{Instant, sleep};

/// The exit status of a probe of this port.
async fn probe(port: u16, more: &[&str]) -> Option<i32> {
    let port = port.to_string();
    program::run(program::command(&[&["health", "--port", &port], more].concat()), "").await.code
}

/// Waits until a probe ends with this status.
async fn until(port: u16, status: i32) {
    let give_up_at = Instant::now() + SOON;
    loop {
        let now = probe(port, &[]).await;
        if now == Some(status) {
            return;
        }
        assert!(Instant::now() < give_up_at, "{now:?}, not {status}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Starts a verb that listens on this port.
async fn start(port: u16, args: &[&str]) -> Running {
    start_as(port, "--listen", program::command(args)).await
}

/// Starts a command that gets its address by this flag.
async fn start_as(port: u16, flag: &str, mut command: Command) -> Running {
    let listen = SocketAddr::from(([127, 0, 0, 1], port));
    command.args(["--log", "error", flag, &listen.to_string()]);
    let mut process = Running::start(command);
    process.listens(listen).await;
    process
}

#[tokio::test]
async fn o3_v5_a_view_counter_is_ready_also_while_it_does_not_reach_the_redis_of_its_log() {
    let mut redis = Redis::start().await;
    let (url, port) = (redis.url(), lasting_port());
    // The log accepts views without the counters.
    let views = start(port, &["views", "--redis-url", &url, "--counters", "http://127.0.0.1:1"]).await;
    until(port, 0).await;
    let http = http_client();
    let health = format!("http://127.0.0.1:{port}/health?service=tallystone.views.log");
    let of_log = async || http.get(health.as_str()).send().await.expect("an answer").status().as_u16();
    redis.kill().await;
    program::until("the log is seen to be away", async || of_log().await == 503).await;
    assert_eq!(probe(port, &[]).await, Some(0), "reads go on");
    assert_eq!(probe(port, &["--live"]).await, Some(0));
    redis.restart().await;
    program::until("the log is seen to be back", async || of_log().await == 200).await;
    assert_eq!(probe(port, &[]).await, Some(0));
    assert!(views.stop().await.success());
}

#[tokio::test]
async fn o3_an_ingest_process_is_ready_while_it_reaches_kafka_and_adds_are_counted() {
    let kafka = TestKafka::shared().await;
    let topics = Topics::create(kafka.address(), "ready", 1).await;
    let redis = Redis::start().await;
    let mut counters = Server::start_as(&["counters", "--redis-url", &redis.url(), "--log", "error"]).await;
    let (url, group, port) = (counters.url(), topics.group(), lasting_port());
    let args = ["ingest", "--topic", &topics.source, "--group", &group, "--namespace", "adds", "--counters", &url];
    let (nothing, other_port) = (format!("127.0.0.1:{}", lasting_port()), lasting_port());
    let listen = format!("127.0.0.1:{other_port}");
    let without_kafka = ["--kafka-brokers", &nothing, "--listen", &listen, "--log", "warn"];
    let mut without_kafka = Running::start_logged(program::command(&[&args[..], &without_kafka].concat()));
    // It has tried. Before that it is not ready either.
    while !without_kafka.line().await.contains("the topic is not there yet") {}
    assert_eq!(probe(other_port, &[]).await, Some(1));
    assert_eq!(probe(other_port, &["--live"]).await, Some(0), "a restart would not repair it");
    without_kafka.kill().await;

    let ingest = start(port, &[&args[..], &["--kafka-brokers", &topics.brokers]].concat()).await;
    until(port, 0).await;
    // Without counters it is ready until there is an add.
    counters.kill().await;
    let (key, value) = ("c".to_owned(), r#"{"counter":"c","delta":1}"#.to_owned());
    topics.write(&[Written { partition: 0, at_ms: now_ms(), key, value }]).await;
    until(port, 1).await;
    assert_eq!(probe(port, &["--live"]).await, Some(0), "a restart would not repair it");
    counters.restart().await;
    until(port, 0).await;
    assert!(ingest.stop().await.success());
}

#[tokio::test]
async fn o3_a_rollup_worker_is_ready_while_it_reaches_redis_and_its_queue() {
    let mut redis = Redis::start().await;
    let url = redis.url();
    let of_redis = ["--redis-url", url.as_str(), "--allow-volatile", "--log", "warn"];
    let mut server = Server::start_as(&[&["server"], &of_redis[..]].concat()).await;
    let (queue, port) = (server.url(), lasting_port());
    let args = ["rollup-worker", "--server", &queue, "--redis-url", &url, "--allow-volatile"];
    let worker = start_as(port, "--metrics-listen", program::command(&args)).await;
    until(port, 0).await;
    server.kill().await;
    until(port, 1).await;
    server.restart().await;
    until(port, 0).await;
    redis.kill().await;
    until(port, 1).await;
    // A restart would repair neither.
    assert_eq!(probe(port, &["--live"]).await, Some(0));
    redis.restart().await;
    until(port, 0).await;
    assert!(worker.stop().await.success());
    assert_eq!(probe(port, &[]).await, Some(3));
}

#[tokio::test]
async fn o3_an_indexer_is_ready_while_it_reaches_kafka_and_elasticsearch() {
    let (kafka, elasticsearch) = tokio::join!(TestKafka::start(), TestElasticsearch::shared());
    let (network, port) = (Network::to(&elasticsearch.address()).await, lasting_port());
    let (brokers, search) = (kafka.address(), network.url());
    let mut command = program::command(&["indexer", "--kafka-brokers", &brokers, "--elasticsearch-url", &search]);
    let name = format!("ready-{:08x}", rand::random::<u32>());
    for variable in ["KAFKA_TOPIC", "INDEXER_GROUP", "ELASTICSEARCH_INDEX_PREFIX"] {
        command.env(format!("TALLYSTONE_{variable}"), &name);
    }
    command.env("TALLYSTONE_ELASTICSEARCH_REPLICAS", "0").env("TALLYSTONE_KAFKA_PARTITIONS", "1");
    let indexer = start_as(port, "--listen", command).await;
    until(port, 0).await;
    network.shut();
    until(port, 1).await;
    assert_eq!(probe(port, &["--live"]).await, Some(0), "a restart would not repair it");
    network.open();
    until(port, 0).await;
    kafka.kill().await;
    until(port, 1).await;
    assert_eq!(probe(port, &["--live"]).await, Some(0), "a restart would not repair it");
    kafka.start_again().await;
    until(port, 0).await;
    assert!(indexer.stop().await.success());
}
