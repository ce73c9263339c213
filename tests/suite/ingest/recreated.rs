//! The topic is deleted and created again: all records of the new one count, and none of the old one twice.

use super::kills::{mixed, rng};
use super::stage::Stage;
use crate::kafka::foreign::ForeignLeader;

const RECORDS: usize = 600;
/// The groups, as `Topics::positions` has them.
const GROUP: usize = 0;
const DECIDED: usize = 1;

#[tokio::test(flavor = "multi_thread")]
async fn n17_a_topic_that_is_created_again_while_it_is_read_counts_once() {
    let mut random = rng();
    let mut stage = Stage::start("again", 3, 1_500).await;
    stage.ingest(None).await;
    stage.write(&mixed(&mut random, RECORDS)).await;
    stage.assert_exact().await;
    for round in 0..3 {
        stage.topics.delete().await;
        stage.topics.create_again().await;
        // As many, and then more.
        stage.write(&mixed(&mut random, RECORDS + round * 300)).await;
        stage.assert_becomes_exact().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n17_a_topic_that_is_created_again_while_no_process_runs_counts_once() {
    let mut random = rng();
    let mut stage = Stage::start("away", 3, 1_500).await;
    stage.ingest(None).await;
    stage.write(&mixed(&mut random, RECORDS)).await;
    stage.assert_exact().await;
    for (round, forgotten) in [None, Some(GROUP), Some(DECIDED)].into_iter().enumerate() {
        let before = stage.topics.positions().await;
        stage.ingests[0].stop().await;
        stage.topics.delete().await;
        stage.topics.create_again().await;
        // More than before, so that no partition ends before its old position.
        stage.write(&mixed(&mut random, RECORDS + (round + 1) * 300)).await;
        // Kafka forgets the offsets of a deleted topic in one group after the other, and a member that had not noticed may write
        // them again.
        stage.topics.put_positions(&before, |group| Some(group) != forgotten).await;
        stage.ingests[0].restart().await;
        stage.assert_becomes_exact().await;
    }
}

/// The leader of the group gave no partition to any member, like a leader that requests the partitions while the topic does not
/// exist.
#[tokio::test(flavor = "multi_thread")]
async fn n17_partitions_that_the_leader_of_the_group_gave_to_no_member_are_read() {
    let mut random = rng();
    for instance in [None, Some("one")] {
        let mut stage = Stage::start("leaderless", 3, 1_500).await;
        stage.write(&mixed(&mut random, RECORDS)).await;
        let topics = stage.topics.clone();
        let join = move || ForeignLeader::join(&topics.brokers, &topics.group(), &topics.source, "range");
        let leader = tokio::task::spawn_blocking(join).await.expect("a leader");
        stage.ingest(instance).await;
        tokio::task::spawn_blocking(move || leader.withhold_from(1)).await.expect("a member triggers a rebalance");
        stage.assert_exact().await;
    }
}
