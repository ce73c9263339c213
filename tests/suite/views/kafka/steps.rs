//! A process dies, or stops and loses its partitions, at each step of the transaction that writes pairs, deltas and positions (V3).

use super::life::{self, STEPS};
use super::record;
use super::stage::Stage;
use crate::counting::house::until;
use crate::ingest::topics::{Written, now_ms};
use nix::sys::signal::Signal;
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

/// It stops when its pairs and deltas are in its transaction, but not its positions. Another process does all of that meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn v3_a_process_that_has_lost_its_partitions_writes_nothing() {
    let mut stage = Stage::start(TestKafka::shared().await, "fenced", 2, "").await;
    for step in [STEPS[0], STEPS[1]] {
        let (video, later) = (step.replace(' ', "-"), format!("{}-later", step.replace(' ', "-")));
        stage.topics.write(&records(&video, 0..USERS)).await;
        let stopped = life::start(&stage, Signal::SIGSTOP, step);
        stopped.has_come().await;
        stage.add_views().await;
        assert_exact(&stage, &video, USERS, 2 * USERS).await;
        stage.views.pop().expect("a process").stop().await;
        stopped.goes_on();
        // Only that process can deduplicate these, after its attempt to write.
        stage.topics.write(&records(&later, 0..USERS)).await;
        let source = vec![stage.topics.source.clone()];
        until(async || stage.topics.are_decided_in(source.clone()).await, |are_decided| *are_decided).await;
        drop(stopped);
        stage.add_views().await;
        stage.has_counted_all(0, &format!("end-{}", video.len())).await;
        assert_exact(&stage, &video, USERS, 2 * USERS).await;
        assert_exact(&stage, &later, USERS, 2 * USERS).await;
        stage.views.pop().expect("a process").stop().await;
    }
}
