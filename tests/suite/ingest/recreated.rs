//! The topic is deleted and created again: all records of the new one count, and none of the old one twice.

use super::kills::{mixed, rng};
use super::stage::Stage;

const RECORDS: usize = 600;

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
        stage.assert_exact().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n17_a_topic_that_is_created_again_while_no_process_runs_counts_once() {
    let mut random = rng();
    let mut stage = Stage::start("away", 3, 1_500).await;
    stage.ingest(None).await;
    stage.write(&mixed(&mut random, RECORDS)).await;
    stage.assert_exact().await;
    for _ in 0..2 {
        let before = stage.topics.positions().await;
        stage.ingests[0].stop().await;
        stage.topics.delete().await;
        stage.topics.create_again().await;
        stage.write(&mixed(&mut random, RECORDS + 100)).await;
        // Kafka forgets the offsets of a deleted topic, but a member that had not noticed may write them again.
        stage.topics.put_positions(&before).await;
        stage.ingests[0].restart().await;
        stage.assert_exact().await;
    }
}
