//! Deltas that have waited for longer than the counters accept them count, and each once (V3).

use super::stage::Stage;
use crate::counting::house::until;
use crate::ingest::topics::{Topics, Written, now_ms};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use serde_json::json;
use std::time::Duration;
use tallystone_tests::TestKafka;
use tallystone_views::kafka::ViewTopics;
use tokio::task::spawn_blocking;

const PARTITIONS: i32 = 2;
const VIDEOS: usize = 3;
const RECORDS: usize = 600;
const DELTA: u64 = 2;
const HOUR_MS: i64 = 3_600_000;
const DEADLINE: Duration = Duration::from_secs(60);

/// Deltas as a member writes them while the sink is unavailable. Half have times of the hour before the last minute,
/// half of the hour before that. The former are sent and refused as too old; the latter are too old for any namespace.
fn deltas() -> Vec<Written> {
    let (begin_ms, step_ms) = (now_ms() - 60_000 - 2 * HOUR_MS, 2 * HOUR_MS / RECORDS as i64);
    let delta = |number: usize| {
        let key = video(number % VIDEOS);
        let value = json!({"namespace": "views-default", "counter": key, "delta": DELTA}).to_string();
        Written { partition: number as i32 % PARTITIONS, at_ms: begin_ms + number as i64 * step_ms, key, value }
    };
    (0..RECORDS).map(delta).collect()
}

fn video(number: usize) -> String {
    format!("waited-{number}")
}

/// A topic of the log, or the consumer group of this name.
fn named(topics: &Topics, name: &str) -> Topics {
    let mut other = topics.clone();
    other.source = name.to_owned();
    other
}

/// How many records were written to a topic, the marks of transactions included.
async fn written(brokers: &str, topic: &str) -> usize {
    let (brokers, topic) = (brokers.to_owned(), topic.to_owned());
    let read = move || {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &brokers).set("group.id", "tests");
        let consumer: BaseConsumer = config.create().expect("a consumer");
        let end = |partition| consumer.fetch_watermarks(&topic, partition, DEADLINE).expect("offsets").1;
        (0..PARTITIONS).map(end).sum::<i64>()
    };
    usize::try_from(spawn_blocking(read).await.expect("no panic")).expect("a count")
}

#[tokio::test(flavor = "multi_thread")]
async fn v3_deltas_that_have_waited_for_an_hour_count_once_although_the_sink_is_killed() {
    let mut stage = Stage::start(TestKafka::shared().await, "waited", PARTITIONS, "").await;
    let topics = ViewTopics::of(&stage.topics.source);
    // It creates the topics, and the namespaces of the counters.
    stage.add_views().await;
    stage.has_counted_all(0, "first").await;
    stage.views[0].stop().await;
    named(&stage.topics, &topics.deltas).write(&deltas()).await;
    stage.views[0].restart().await;
    let path = |number: usize| format!("/v1/videos/{}/views", video(number));
    stage.http(0).until(&path(0), |counts| counts["viewCount"].as_u64() > Some(0)).await;
    stage.views[0].kill().await;
    stage.views[0].restart().await;
    let are_exact = async || {
        for number in 0..VIDEOS {
            stage.http(0).until_count(&path(number), (RECORDS / VIDEOS) as u64 * DELTA).await;
        }
    };
    are_exact().await;
    let sink = named(&stage.topics, &topics.sink_group);
    let read = vec![topics.deltas.clone(), topics.late.clone()];
    until(async || sink.are_decided_in(read.clone()).await, |are_decided| *are_decided).await;
    stage.has_counted_all(0, "end").await;
    are_exact().await;
    // None has counted with its first time.
    let late = written(&stage.topics.brokers, &topics.late).await;
    assert!(late >= RECORDS, "{late} records were late");
}
