//! Reads continue while something is unavailable, and what was accepted counts later (V3, V5).

use super::machines::Machines;
use super::view;
use crate::counting::house::until;
use serde_json::json;
use std::time::Duration;
use tallystone_link::wall_ms;
use tokio::time::Instant;

/// The accept limit of the counters, and some time for their clock.
const TOO_OLD_MS: u64 = 7_000;
/// The smallest number of counts that a process may be configured to keep.
const KEPT_MAX: usize = 1_000;

#[tokio::test(flavor = "multi_thread")]
async fn v3_v5_views_accepted_while_the_counters_are_unavailable_count_and_reads_go_on() {
    let mut machines = Machines::start(1).await;
    let http = machines.http(0);
    http.accepted("/v1/views", &view("v", "before")).await;
    http.until_count("/v1/videos/v/views", 1).await;
    machines.counters.kill().await;
    for user in 0..40 {
        http.accepted("/v1/views", &view("v", &user.to_string())).await;
    }
    // Their first tokens are too old when the counters are back.
    let is_too_old = |times: &Vec<u64>| times.iter().any(|at_ms| at_ms + TOO_OLD_MS < wall_ms());
    until(async || machines.waiting_deltas().await, is_too_old).await;
    let (status, counts) = http.get("/v1/videos/v/views").await;
    assert_eq!((status, &counts["viewCount"]), (200, &json!(1)), "{counts}");
    assert!(counts["ageMs"].as_u64().is_some_and(|age_ms| age_ms > 1_000), "{counts}");
    // The visitors of that day were never read.
    let (status, counts) = http.get("/v1/videos/v/views?day=2001-02-03").await;
    assert_eq!((status, &counts["viewCount"]), (200, &json!(1)), "{counts}");
    assert!(counts.get("dailyVisitors").is_none(), "{counts}");
    let (status, answer) = http.get("/v1/videos/never-read/views").await;
    assert_eq!((status, &answer["error"]["reason"]), (503, &json!("NO_COUNT")));
    machines.counters.restart().await;
    http.until_counts("/v1/videos/v/views", 41, 41, 41).await;
    until(async || machines.waiting_deltas().await, Vec::is_empty).await;
}

/// A process without its log is ready, so that a Service of Kubernetes still sends it the reads.
#[tokio::test(flavor = "multi_thread")]
async fn v5_a_server_without_its_log_is_ready_and_the_health_of_the_log_is_reported() {
    let mut machines = Machines::start(1).await;
    let http = machines.http(0);
    http.accepted("/v1/views", &view("v", "u")).await;
    http.until_count("/v1/videos/v/views", 1).await;
    http.until_log_is("SERVING").await;
    machines.redis.kill().await;
    http.until_log_is("NOT_SERVING").await;
    assert_eq!(http.get("/readyz").await, (200, json!({"status": "SERVING"})));
    let (status, counts) = http.get("/v1/videos/v/views").await;
    assert_eq!((status, &counts["viewCount"]), (200, &json!(1)), "{counts}");
    machines.redis.restart().await;
    http.until_log_is("SERVING").await;
    assert_eq!(http.get("/readyz").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn v5_reads_are_answered_at_once_while_redis_and_the_counters_are_unavailable() {
    let mut machines = Machines::start(2).await;
    let readers = [machines.http(0), machines.http(1)];
    readers[0].accepted("/v1/views", &view("v", "u")).await;
    for reader in &readers {
        reader.until_count("/v1/videos/v/views", 1).await;
    }
    let (mut reads, mut slowest) = (0, Duration::ZERO);
    for away in ["redis", "counters"] {
        match away {
            "redis" => machines.redis.kill().await,
            _ => machines.counters.kill().await,
        }
        for _ in 0..200 {
            for reader in &readers {
                let began = Instant::now();
                let (status, counts) = reader.get("/v1/videos/v/views").await;
                slowest = slowest.max(began.elapsed());
                assert_eq!((status, &counts["viewCount"]), (200, &json!(1)), "without {away}: {counts}");
                reads += 1;
            }
        }
        if away == "redis" {
            let batch = json!({"views": [view("w", "u"), view("", "u"), view("x", "u")]});
            for (path, body) in [("/v1/views", view("w", "u")), ("/v1/views:batch", batch)] {
                let (status, answer) = readers[0].post(path, &body).await;
                let reason = &answer["error"]["reason"];
                assert_eq!((status, reason), (503, &json!("STORE_UNAVAILABLE")), "no view is in the log: {answer}");
            }
        }
        match away {
            "redis" => machines.redis.restart().await,
            _ => machines.counters.restart().await,
        }
    }
    println!("{reads} reads, the slowest took {slowest:?}");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
}

/// A video has three counts. At least half of `counts_kept_max` are those that were read last.
#[tokio::test(flavor = "multi_thread")]
async fn v5_a_server_keeps_as_many_counts_as_configured_and_those_that_were_read_last() {
    let mut machines = Machines::start_with(&format!("counts_kept_max = {KEPT_MAX}"), 1).await;
    let http = machines.http(0);
    let path = |video: usize| format!("/v1/videos/v{video}/views");
    // So that the counters have the namespaces.
    http.accepted("/v1/views", &view("v0", "u")).await;
    http.until_counts(&path(0), 1, 1, 1).await;
    for video in 1..KEPT_MAX {
        http.until_counts(&path(video), 0, 0, 0).await;
    }
    machines.counters.kill().await;
    for video in KEPT_MAX - KEPT_MAX / 6..KEPT_MAX {
        let (status, counts) = http.get(&path(video)).await;
        assert_eq!((status, &counts["viewCount"]), (200, &json!(0)), "{video}: {counts}");
    }
    let (status, answer) = http.get(&path(0)).await;
    assert_eq!((status, &answer["error"]["reason"]), (503, &json!("NO_COUNT")));
}
