//! The topic of views is deleted and created again: all views of the new one count, and no pair of the old one twice.

use super::record;
use super::stage::Stage;
use crate::ingest::topics::Written;
use nix::sys::signal::Signal;
use std::ops::Range;
use tallystone_tests::TestKafka;

/// 2100-01-01T00:00:00Z. A member advances the time of an idle partition to that of its clock, which must not end these windows.
const FUTURE_MS: i64 = 4_102_444_800_000;
const PATH: &str = "/v1/videos/v/views?day=2100-01-01";

fn records(users: Range<u64>) -> Vec<Written> {
    users.map(|user| record(0, FUTURE_MS + user.cast_signed(), "v", &user.to_string())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn v2_v3_a_topic_that_is_created_again_while_no_process_runs_counts_its_views_and_keeps_the_pairs() {
    let mut stage = Stage::start(TestKafka::shared().await, "again", 2, "").await;
    stage.topics.write(&records(0..50)).await;
    stage.add_views().await;
    stage.http(0).until_counts(PATH, 50, 50, 50).await;
    stage.views[0].stop().await;
    stage.topics.delete().await;
    stage.topics.create_again().await;
    stage.topics.write(&records(40..120)).await;
    stage.views[0].restart().await;
    stage.http(0).until_counts(PATH, 120, 130, 120).await;
    // The state has positions of both topics, and the next process reads those of the new one.
    stage.views[0].stop().await;
    stage.topics.write(&records(100..130)).await;
    stage.views[0].restart().await;
    stage.http(0).until_counts(PATH, 130, 160, 130).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v2_v3_a_topic_that_is_created_again_while_it_is_read_counts_each_view_once() {
    created_again_while_read("live", false).await;
}

/// Its client never sees that the topic was not there, and may read on at its position.
#[tokio::test(flavor = "multi_thread")]
async fn v2_v3_a_topic_that_is_created_again_while_its_reader_is_frozen_counts_each_view_once() {
    created_again_while_read("frozen", true).await;
}

async fn created_again_while_read(test: &str, is_frozen: bool) {
    let mut stage = Stage::start(TestKafka::shared().await, test, 2, "").await;
    stage.add_views().await;
    let (mut users, mut page_views) = (50, 50);
    stage.topics.write(&records(0..users)).await;
    stage.http(0).until_counts(PATH, users, page_views, users).await;
    for round in 1..=3 {
        if is_frozen {
            stage.views[0].signal(Signal::SIGSTOP);
        }
        stage.topics.delete().await;
        stage.topics.create_again().await;
        // More than the topic had, so that no reader finds its end before its own position; some of these pairs have counted.
        let (from, to) = (users - 20, users + 100 * round);
        stage.topics.write(&records(from..to)).await;
        if is_frozen {
            stage.views[0].signal(Signal::SIGCONT);
        }
        (users, page_views) = (to, page_views + to - from);
        stage.http(0).until_counts(PATH, users, page_views, users).await;
    }
    // What comes after the last check is no view of these topics.
    stage.has_counted_all(0, "end").await;
    stage.http(0).until_counts(PATH, users, page_views, users).await;
}
