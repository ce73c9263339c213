//! Every view that was accepted counts once, whatever is killed or paused (V3), and reads go on (V5).

use super::stage::Stage;
use crate::views::load::{Posters, assert_exact, post_all, until_all_counted};
use crate::views::view;
use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use std::sync::Arc;
use tallystone_tests::TestKafka;

/// What is killed, how often: two view counters, the broker, the Redis of the counters, and the counters.
const KILLS: usize = 10;

/// A topic that the program creates: its brokers set the times.
const OWN_TOPIC: &str = "views";

#[tokio::test(flavor = "multi_thread")]
async fn v3_views_accepted_by_kafka_count_once_although_everything_is_killed() {
    let seed: u64 = rand::rng().random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut stage = Stage::start(Arc::new(TestKafka::start().await), "killed", 2, "").await;
    for _ in 0..2 {
        stage.add_views_on(OWN_TOPIC).await;
    }
    let posters = Posters::start(seed, |number| stage.http(number % 2));
    for round in 0..KILLS {
        // A random point under load.
        posters.until_posted(random.random_range(100..2_000)).await;
        match round % 5 {
            0 | 3 => {
                let views = &mut stage.views[round % 5 / 3];
                views.kill().await;
                views.restart().await;
            }
            1 => {
                stage.kafka.kill().await;
                stage.kafka.start_again().await;
            }
            2 => {
                stage.redis.kill().await;
                stage.redis.restart().await;
            }
            _ => {
                stage.counters.kill().await;
                stage.counters.restart().await;
            }
        }
    }
    posters.until_posted(100).await;
    let accepted = posters.stop().await;
    stage.has_counted_all(0, "end").await;
    assert_exact(&stage.http(0), &accepted).await;
    // Once more in new processes: what they read back is what was counted.
    for views in &mut stage.views {
        views.kill().await;
        views.restart().await;
    }
    let http = stage.http(0);
    for (video, user) in accepted.iter().step_by(97) {
        http.until_accepted(&view(&format!("v{video}"), &format!("u{user}"))).await;
    }
    stage.has_counted_all(1, "again").await;
    assert_exact(&http, &accepted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v3_a_process_that_was_paused_and_has_lost_its_partitions_counts_nothing_twice() {
    let mut stage = Stage::start(TestKafka::shared().await, "paused", 2, "").await;
    let topic = format!("{}-own", stage.topics.source);
    for _ in 0..2 {
        stage.add_views_on(&topic).await;
    }
    post_all(&stage.http(0), 0..30).await;
    until_all_counted(&stage.http(0), 30).await;
    for round in 0..2_usize {
        let other = 1 - round;
        let users = 30 * (round as u64 + 1);
        post_all(&stage.http(round), 0..users + 10).await;
        stage.views[round].signal(Signal::SIGSTOP);
        post_all(&stage.http(other), 0..users + 30).await;
        // The group gives its partitions to the other process, which counts all views.
        until_all_counted(&stage.http(other), users + 30).await;
        stage.views[round].signal(Signal::SIGCONT);
        post_all(&stage.http(round), 0..users + 30).await;
        stage.has_counted_all(other, &format!("round-{round}")).await;
        // The partitions go back, with the pairs that the other process has counted.
        stage.views[other].kill().await;
        post_all(&stage.http(round), 0..users + 30).await;
        stage.has_counted_all(round, &format!("back-{round}")).await;
        until_all_counted(&stage.http(round), users + 30).await;
        stage.views[other].restart().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn v5_reads_are_answered_while_the_broker_is_down_and_what_was_accepted_counts_later() {
    let stage = &mut Stage::start(Arc::new(TestKafka::start().await), "down", 2, "").await;
    stage.add_views_on(OWN_TOPIC).await;
    let http = stage.http(0);
    http.accepted("/v1/views", &view("v", "before")).await;
    http.until_count("/v1/videos/v/views", 1).await;
    stage.kafka.kill().await;
    let (status, answer) = http.post("/v1/views", &view("v", "lost")).await;
    let (reason, applied) = (&answer["error"]["reason"], &answer["error"]["applied"]);
    assert_eq!((status, reason, applied), (503, &json!("STORE_UNAVAILABLE"), &json!("unknown")), "{answer}");
    for _ in 0..200 {
        let (status, counts) = http.get("/v1/videos/v/views").await;
        assert_eq!((status, &counts["viewCount"]), (200, &json!(1)), "{counts}");
    }
    http.until_log_is("NOT_SERVING").await;
    assert_eq!(http.get("/readyz").await.0, 200, "reads go on");
    stage.kafka.start_again().await;
    http.until_log_is("SERVING").await;
    http.until_accepted(&view("v", "lost")).await;
    http.until_count("/v1/videos/v/views", 2).await;
    // Views wait in Kafka while the counters are down.
    stage.counters.kill().await;
    for user in 0..40 {
        http.accepted("/v1/views", &view("v", &user.to_string())).await;
    }
    let (status, counts) = http.get("/v1/videos/v/views").await;
    assert_eq!((status, &counts["viewCount"]), (200, &json!(2)), "{counts}");
    stage.counters.restart().await;
    http.until_counts("/v1/videos/v/views", 42, 42, 42).await;
}
