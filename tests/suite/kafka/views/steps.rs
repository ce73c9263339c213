//! At each step of the transaction that writes pairs, deltas and positions, a process dies, or stops and loses its partitions, or the
//! broker dies (V3).

use super::life::{self, STEPS};
use super::record;
use super::stage::Stage;
use crate::counting::house::until;
use crate::ingest::topics::{Written, now_ms};
use nix::sys::signal::Signal;
use std::sync::Arc;
use tallystone_tests::TestKafka;

const USERS: u64 = 40;

/// Each pair twice, and other pairs for each video; one video is in each partition.
fn records(video: &str, users: std::ops::Range<u64>) -> Vec<Written> {
    let record =
        |user: u64, partition: i32| record(partition, now_ms(), &format!("{video}-{partition}"), &user.to_string());
    let all = users.clone().chain(users);
    all.flat_map(|user| [record(user, 0), record(user, 1)]).collect()
}

/// Waits until each video has this count in both partitions, and its page views.
async fn assert_exact(stage: &Stage, video: &str, views: u64, page_views: u64) {
    for partition in 0..2 {
        let path = format!("/v1/videos/{video}-{partition}/views");
        stage.http(0).until_counts(&path, views, page_views, views).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn v3_a_process_may_die_at_any_step_of_a_transaction() {
    let mut stage = Stage::start(TestKafka::shared().await, "steps", 2, "").await;
    // From here on the group has positions. Without them a process continues at the position in the state, so it would not be seen
    // if records were written without the positions of the group.
    stage.add_views().await;
    stage.has_counted_all(0, "first").await;
    stage.views.pop().expect("a process").stop().await;
    for (number, step) in STEPS.into_iter().enumerate() {
        stage.topics.write(&records(&format!("life-{number}"), 0..USERS)).await;
        life::start(&stage, Signal::SIGKILL, step).dies().await;
        // The pairs of this life again: they have counted, if its transaction was committed, or else will with these.
        stage.topics.write(&records(&format!("life-{number}"), 0..USERS)).await;
    }
    stage.add_views().await;
    stage.has_counted_all(0, "end").await;
    for number in 0..STEPS.len() {
        assert_exact(&stage, &format!("life-{number}"), USERS, 4 * USERS).await;
    }
}

/// It stops (SIGSTOP) at each step, and continues when the broker has died (SIGKILL) and come back.
#[tokio::test(flavor = "multi_thread")]
async fn v3_the_broker_may_die_at_any_step_of_a_transaction() {
    let mut stage = Stage::start(Arc::new(TestKafka::start().await), "broker-steps", 2, "").await;
    // From here on the group has positions: see above.
    stage.add_views().await;
    stage.has_counted_all(0, "first").await;
    stage.views.pop().expect("a process").stop().await;
    let source = vec![stage.topics.source.clone()];
    for (number, step) in STEPS.into_iter().enumerate() {
        stage.topics.write(&records(&format!("broker-{number}"), 0..USERS)).await;
        let stopped = life::start(&stage, Signal::SIGSTOP, step);
        stopped.has_come().await;
        stage.kafka.kill().await;
        stage.kafka.start_again().await;
        stopped.goes_on();
        until(async || stage.topics.are_decided_in(source.clone()).await, |are_decided| *are_decided).await;
        drop(stopped);
    }
    stage.add_views().await;
    stage.has_counted_all(0, "end").await;
    for number in 0..STEPS.len() {
        assert_exact(&stage, &format!("broker-{number}"), USERS, 2 * USERS).await;
    }
}

/// A process is stopped (SIGSTOP) at the step with this number. Another process does all the work. Then the first one continues.
async fn loses_its_partitions_at(number: usize) {
    let mut stage = Stage::start(TestKafka::shared().await, &format!("fenced-{number}"), 2, "").await;
    // From here on the group has positions: see above.
    stage.add_views().await;
    stage.has_counted_all(0, "first").await;
    stage.views.pop().expect("a process").stop().await;
    stage.topics.write(&records("stopped", 0..USERS)).await;
    let stopped = life::start(&stage, Signal::SIGSTOP, STEPS[number]);
    stopped.has_come().await;
    stage.add_views().await;
    assert_exact(&stage, "stopped", USERS, 2 * USERS).await;
    stage.views.pop().expect("a process").stop().await;
    stopped.goes_on();
    // Only that process can deduplicate these, after its attempt to write.
    stage.topics.write(&records("later", 0..USERS)).await;
    let source = vec![stage.topics.source.clone()];
    until(async || stage.topics.are_decided_in(source.clone()).await, |are_decided| *are_decided).await;
    drop(stopped);
    stage.add_views().await;
    stage.has_counted_all(0, "end").await;
    for video in ["stopped", "later"] {
        assert_exact(&stage, video, USERS, 2 * USERS).await;
    }
}

// A test for each step: each waits until Kafka has aborted a transaction, and they wait together.

#[tokio::test(flavor = "multi_thread")]
async fn v3_a_process_that_has_lost_its_partitions_when_its_transaction_has_begun_writes_nothing() {
    loses_its_partitions_at(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v3_a_process_that_has_lost_its_partitions_behind_its_records_writes_nothing() {
    loses_its_partitions_at(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v3_a_process_that_has_lost_its_partitions_behind_its_positions_writes_nothing() {
    loses_its_partitions_at(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v3_a_process_that_has_lost_its_partitions_behind_its_ledgers_writes_nothing() {
    loses_its_partitions_at(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v3_a_process_that_has_lost_its_partitions_behind_its_commit_writes_nothing_twice() {
    loses_its_partitions_at(4).await;
}
