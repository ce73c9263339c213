//! What the indexer hands to the store, and what it has committed.

use super::*;
use std::collections::BTreeSet;
use tallystone_indexer::HistoryError;
use tallystone_indexer::kafka::KafkaSink;

#[tokio::test]
async fn q19_everything_is_recorded_then_the_watermark_is_told_of_each_partition() {
    let kafka = TestKafka::shared().await;
    let topic = topic_of(&kafka, "indexed");
    let sink = KafkaSink::new(&topic).expect("a sink");
    let keeper = Keeper::new();
    let running = Running::start(&keeper, &topic);
    sink.deliver(lives(0..500, 3).into()).await.expect("delivered");
    // No watermark is needed for that.
    keeper.until_events(1_500).await;
    assert_eq!(keeper.kept().whole_messages(), 500);
    assert!(keeper.kept().reached.is_empty());

    let first_ms = now_ms();
    sink.delivered_to(first_ms).await.expect("delivered");
    keeper.until("the watermark", |kept| kept.reached == (0..4).map(|n| (n, first_ms)).collect()).await;
    assert_eq!(keeper.kept().of, BTreeSet::from([4]));

    // The store takes nothing: what stands behind is not told, also where more batches are on their way.
    keeper.refuse(Some(HistoryError::Unavailable("a test".to_owned())));
    sink.deliver(lives(500..550, 1).into()).await.expect("delivered");
    sink.delivered_to(first_ms + 1).await.expect("delivered");
    sink.deliver(lives(550..900, 1).into()).await.expect("delivered");
    // They take seconds; the store is told every second.
    keeper.until("twelve tries", |kept| kept.refused >= 12).await;
    assert!(keeper.kept().reached.values().all(|reached| *reached == first_ms));
    keeper.refuse(None);
    keeper.until_events(1_900).await;
    keeper.until("the watermark", |kept| kept.reached.values().all(|reached| *reached == first_ms + 1)).await;
    running.stop().await;
}

#[tokio::test]
async fn q19_what_is_done_is_committed_at_a_stop() {
    let kafka = TestKafka::shared().await;
    let topic = topic_of(&kafka, "committed");
    let sink = KafkaSink::new(&topic).expect("a sink");
    sink.deliver(lives(0..200, 2).into()).await.expect("delivered");
    let first = Keeper::new();
    let running = Running::start(&first, &topic);
    first.until_events(400).await;
    running.stop().await;

    sink.deliver(lives(200..300, 2).into()).await.expect("delivered");
    let second = Keeper::new();
    let running = Running::start(&second, &topic);
    second.until_events(200).await;
    running.stop().await;
}

#[tokio::test]
async fn q19_what_the_store_has_not_taken_is_not_committed() {
    let kafka = TestKafka::shared().await;
    let topic = topic_of(&kafka, "uncommitted");
    let sink = KafkaSink::new(&topic).expect("a sink");
    sink.deliver(lives(0..200, 2).into()).await.expect("delivered");
    let keeper = Keeper::new();
    keeper.refuse(Some(HistoryError::Failed("it is broken".to_owned())));
    let ended = Running::start(&keeper, &topic).ended().await.expect_err("waiting will not mend it");
    assert!(ended.to_string().contains("it is broken"), "{ended}");
    keeper.refuse(None);
    let running = Running::start(&keeper, &topic);
    keeper.until_events(400).await;
    running.stop().await;
}

#[tokio::test]
async fn q19_a_store_that_is_away_for_long_costs_nothing_but_time() {
    let kafka = TestKafka::shared().await;
    let mut topic = topic_of(&kafka, "patient");
    // A consumer that does not ask for as long as this is put out of the group, and would read all of it again.
    topic.properties.insert("session.timeout.ms".to_owned(), "6000".to_owned());
    topic.properties.insert("max.poll.interval.ms".to_owned(), "6000".to_owned());
    let sink = KafkaSink::new(&topic).expect("a sink");
    let keeper = Keeper::new();
    let running = Running::start_with(&keeper, IndexerOptions { batch_events_max: 10, ..options(&topic) });
    sink.deliver(lives(0..10, 1).into()).await.expect("delivered");
    keeper.until_events(10).await;
    keeper.refuse_for(Duration::from_secs(10));
    sink.deliver(lives(10..500, 2).into()).await.expect("delivered");
    keeper.until_events(990).await;
    assert_eq!(keeper.kept().whole_messages(), 500);
    assert!(keeper.kept().refused > 3, "it was not away");
    assert_eq!(keeper.kept().repeated(), 0, "it was put out of the group");
    running.stop().await;
}

#[tokio::test]
async fn q19_events_that_were_there_before_the_topic_was_known_are_read() {
    let kafka = TestKafka::shared().await;
    let topic = topic_of(&kafka, "first");
    // The indexer makes the topic itself; the relay finds it.
    let keeper = Keeper::new();
    let running = Running::start(&keeper, &topic);
    let sink = KafkaSink::new(&topic).expect("a sink");
    sink.deliver(life("m", 5).into()).await.expect("delivered");
    keeper.until_events(5).await;
    running.stop().await;
}
