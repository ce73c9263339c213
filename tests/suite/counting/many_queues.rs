//! Namespaces with thousands of rollup queues: the worker serves them all over a few Work streams (N8, N10).

use super::machines::listed;
use super::{lasting_address, until_all};
use crate::crash::machines::{Redis, Server};
use crate::system::program::{self, Running, SOON, metrics_page};
use std::time::Duration;
use tallystone_client::{CounterClient, CounterEntry, NamespaceConfig, NewAdd};

const NAMESPACES: usize = 3;
const QUEUES: u32 = 1_000;
/// Of each namespace: two for each queue, on average.
const COUNTERS: usize = 2_000;
const BATCH: usize = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n8_the_counters_of_thousands_of_queues_are_rolled_up_over_a_few_streams() {
    let (redis, metrics) = (Redis::start().await, lasting_address());
    let url = redis.url();
    let args = ["server", "--redis-url", &url, "--metrics-listen", &metrics, "--log", "error"];
    let queue = Server::start_as(&args).await;
    let queue_url = queue.url();
    let args = ["counters", "--redis-url", &url, "--server", &queue_url, "--log", "error"];
    let counters = Server::start_as(&args).await;
    let args = ["rollup-worker", "--redis-url", &url, "--server", &queue_url, "--log", "error"];
    let _worker = Running::start(program::command(&args));
    let client =
        CounterClient::builder(counters.url()).call_timeout(SOON).connect().await.expect("a server that listens");

    let names: Vec<String> = (0..NAMESPACES).map(|number| format!("wide{number}")).collect();
    for namespace in &names {
        let config = NamespaceConfig { num_queues: Some(QUEUES), ..NamespaceConfig::default() };
        client.put_namespace(namespace, config).await.expect("a new namespace");
        for batch in 0..COUNTERS / BATCH {
            let adds = (0..BATCH).map(|place| NewAdd::new((batch * BATCH + place).to_string(), delta(place)));
            for result in client.add_many(namespace, adds.collect()).await.expect("a batch") {
                result.expect("an add");
            }
        }
    }
    let exact = async || {
        let mut exact = 0;
        for namespace in &names {
            let right = |(name, entry): &(String, CounterEntry)| {
                let place = name.parse::<usize>().expect("a number") % BATCH;
                entry.count == delta(place) && entry.exact_to_ms > 0
            };
            exact += listed(&client, namespace).await.into_iter().filter(right).count();
        }
        exact
    };
    until_all(NAMESPACES * COUNTERS, Duration::from_secs(2), exact).await;
    let page = metrics_page(&metrics).await;
    let streams = page.lines().find_map(|line| line.strip_prefix("tallystone_work_streams "));
    let streams: f64 = streams.and_then(|value| value.parse().ok()).expect("a metric");
    assert!((1.0..=NAMESPACES as f64).contains(&streams), "{streams} streams for {NAMESPACES} x {QUEUES} queues");
}

fn delta(place: usize) -> i64 {
    place as i64 - 100
}
