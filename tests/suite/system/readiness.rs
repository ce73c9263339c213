//! O3: what `tallystone health --port` says of a process, and when a rollup worker is ready.

use super::program::{self, Running, SOON};
use crate::crash::machines::{Redis, Server};
use std::net::SocketAddr;
use std::time::Duration;
use tallystone_tests::{TestElasticsearch, TestKafka, lasting_port};
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

#[tokio::test]
async fn o3_a_rollup_worker_is_ready_while_it_reaches_redis_and_its_queue() {
    let mut redis = Redis::start().await;
    let url = redis.url();
    let of_redis = ["--redis-url", url.as_str(), "--allow-volatile", "--log", "warn"];
    let mut server = Server::start_as(&[&["server"], &of_redis[..]].concat()).await;
    let (queue, port) = (server.url(), lasting_port());
    let listen = SocketAddr::from(([127, 0, 0, 1], port));
    let args = ["rollup-worker", "--server", &queue, "--metrics-listen", &listen.to_string()].map(str::to_owned);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut worker = Running::start(program::command(&[&args[..], &of_redis[..]].concat()));
    worker.listens(listen).await;
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
    let (kafka, elasticsearch) = tokio::join!(TestKafka::shared(), TestElasticsearch::shared());
    let nothing = || format!("127.0.0.1:{}", lasting_port());
    let (brokers, search) = (kafka.address(), elasticsearch.address());
    let name = format!("ready-{:08x}", rand::random::<u32>());
    for (brokers, search, status) in
        [(brokers.clone(), search.clone(), 0), (nothing(), search, 1), (brokers, format!("http://{}", nothing()), 1)]
    {
        let port = lasting_port();
        let listen = SocketAddr::from(([127, 0, 0, 1], port));
        let args = ["--listen", &listen.to_string(), "--kafka-brokers", &brokers, "--elasticsearch-url", &search]
            .map(str::to_owned);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut command = program::command(&[&["indexer"], &args[..], &["--log", "error"]].concat());
        for variable in ["KAFKA_TOPIC", "INDEXER_GROUP", "ELASTICSEARCH_INDEX_PREFIX"] {
            command.env(format!("TALLYSTONE_{variable}"), &name);
        }
        command.env("TALLYSTONE_ELASTICSEARCH_REPLICAS", "0").env("TALLYSTONE_KAFKA_PARTITIONS", "1");
        let mut indexer = Running::start(command);
        indexer.listens(listen).await;
        until(port, status).await;
        assert_eq!(probe(port, &["--live"]).await, Some(0), "a restart would repair neither");
        assert!(indexer.stop().await.success());
    }
}
