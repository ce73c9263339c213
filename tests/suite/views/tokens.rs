//! A delta counts once: its token names its log and its record (V3).

use super::machines::Machines;
use super::stage::{Stage, serve};
use super::view;
use crate::counting::house::{House, until};
use redis::aio::ConnectionLike;
use tallystone_client::{CounterType, IdempotencyToken, NamespaceConfig, NewAdd};
use tallystone_link::wall_ms;
use tallystone_tests::{TestConnection, TestRedis};
use tallystone_views::ViewsConfig;

const NAMESPACE: &str = "views-default";
/// Longer than the counters know which tokens have counted (`close_after_ms`).
const FORGOTTEN_MS: u64 = 7 * 86_400_000;

/// A record of deltas that adds to the counter of a video. An earlier version did not begin it with a mark.
fn record(has_mark: bool, video: &str, delta: u32) -> Vec<u8> {
    let mut bytes = if has_mark { vec![0, 1, 0xFF] } else { Vec::new() };
    for text in [NAMESPACE, video] {
        bytes.push(text.len() as u8);
        bytes.extend(text.as_bytes());
    }
    bytes.extend(delta.to_be_bytes());
    bytes
}

/// Writes a record that waits for the counters, and returns its id.
async fn write(redis: &mut impl ConnectionLike, at: &str, record: &[u8]) -> String {
    let mut command = redis::cmd("XADD");
    command.arg("tc:views:{0}:deltas").arg(at).arg("d").arg(record);
    command.query_async(redis).await.expect("a record")
}

async fn until_no_delta_waits(redis: &TestConnection) {
    let waiting = async || {
        let mut command = redis::cmd("XLEN");
        let waiting: u64 = command.arg("tc:views:{0}:deltas").query_async(&mut redis.clone()).await.expect("a stream");
        waiting
    };
    until(waiting, |waiting| *waiting == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v3_two_logs_with_records_of_the_same_id_count_both() {
    let (house, other) = (House::without_rollups().await, TestRedis::start().await);
    let (log, counters) = (house.redis.url(), house.clients[0].clone());
    let at = format!("{}-0", wall_ms());
    let mut connections = [house.redis.connection().await, other.connection().await];
    for redis in &mut connections {
        write(redis, &at, &record(true, "v", 3)).await;
    }
    let views = ViewsConfig { partitions: 1, ..ViewsConfig::default() };
    let url = house.urls[0].clone();
    let first = Stage::start_on(house, &log, views.clone()).await;
    let second = serve(&url, &other.url(), views).await;
    for redis in &connections {
        until_no_delta_waits(redis).await;
    }
    assert_eq!(counters.get(NAMESPACE, "v").await.expect("a counter").count, 6);
    drop((first, second));
}

#[tokio::test(flavor = "multi_thread")]
async fn v3_a_record_of_an_earlier_version_that_has_counted_counts_no_more() {
    let house = House::without_rollups().await;
    let (log, counters) = (house.redis.url(), house.clients[0].clone());
    let mut redis = house.redis.connection().await;
    let mut sent = Vec::new();
    for video in ["sent", "waiting"] {
        sent.push(write(&mut redis, "*", &record(false, video, 5)).await);
    }
    // The earlier version has sent the first one, and was stopped before it had the answer.
    let config = NamespaceConfig { counter_type: Some(CounterType::Accurate), ..NamespaceConfig::default() };
    counters.put_namespace(NAMESPACE, config).await.expect("a namespace");
    let at_ms = sent[0].split('-').next().and_then(|ms| ms.parse().ok()).expect("an id");
    let token = IdempotencyToken::new(format!("v0/{}", sent[0]), at_ms);
    counters.add(NAMESPACE, NewAdd::new("sent", 5).token(token)).await.expect("counted");
    let Stage { http, .. } =
        &Stage::start_on(house, &log, ViewsConfig { partitions: 1, ..ViewsConfig::default() }).await;
    until_no_delta_waits(&redis).await;
    http.accepted("/v1/views", &view("sent", "u")).await;
    http.until_count("/v1/videos/sent/views", 6).await;
    http.until_count("/v1/videos/waiting/views", 5).await;
}

/// What the counters refuse as too old is sent again at once: behind a backlog it would be too old each time.
#[tokio::test(flavor = "multi_thread")]
async fn v3_a_long_backlog_of_old_records_counts() {
    const RECORDS: u64 = 3_000;
    let house = House::without_rollups().await;
    let (log, counters) = (house.redis.url(), house.clients[0].clone());
    let config = NamespaceConfig {
        counter_type: Some(CounterType::Accurate),
        // Much shorter than the time to send all records, and longer than a call on a busy machine.
        accept_limit_ms: Some(1_000),
        ..NamespaceConfig::default()
    };
    counters.put_namespace(NAMESPACE, config).await.expect("a namespace");
    let mut redis = house.redis.connection().await;
    let an_hour_ago_ms = wall_ms() - 3_600_000;
    for number in 0..RECORDS {
        write(&mut redis, &format!("{}-0", an_hour_ago_ms + number), &record(true, "v", 1)).await;
    }
    let stage = Stage::start_on(house, &log, ViewsConfig { partitions: 1, ..ViewsConfig::default() }).await;
    // However slow the machine is, the count rises.
    let mut counted = 0;
    while counted < RECORDS as i64 {
        let count = async || counters.get(NAMESPACE, "v").await.expect("a counter").count;
        counted = until(count, |count| *count > counted).await;
    }
    assert_eq!(counted, RECORDS as i64);
    drop(stage);
}

/// The counters can no longer say whether they have counted. They are reported, and do not delay the next ones.
#[tokio::test(flavor = "multi_thread")]
async fn v3_adds_that_wait_for_longer_than_the_counters_know_their_tokens_are_unresolved() {
    let mut machines = Machines::start(0).await;
    let at = format!("{}-0", wall_ms() - FORGOTTEN_MS);
    write(&mut machines.redis.connection().await, &at, &record(true, "v", 5)).await;
    machines.add_views().await;
    let is_reported = |page: &String| page.lines().any(|line| line == "tallystone_views_unresolved_total 5");
    until(async || machines.views[0].metrics().await, is_reported).await;
    machines.http(0).accepted("/v1/views", &view("v", "u")).await;
    machines.http(0).until_count("/v1/videos/v/views", 1).await;
    machines.until_nothing_waits().await;
}
