//! The events that the indexer hands to the store, and the offsets that it commits.

use super::*;
use std::collections::BTreeSet;
use tallystone_indexer::HistoryError;
use tallystone_indexer::kafka::KafkaSink;

#[tokio::test]
async fn q19_all_events_are_recorded_before_the_watermark_of_a_partition() {
    let kafka = TestKafka::shared().await;
    let topic = topic_of(&kafka, "indexed");
    let sink = KafkaSink::new(&topic).expect("a sink");
    let store = RecordingStore::new();
    let running = RunningIndexer::start(&store, &topic);
    sink.deliver(lives(0..500, 3).into()).await.expect("delivered");
    // Events need no watermark to be recorded.
    store.until_events(1_500).await;
    assert_eq!(store.recording().whole_messages(), 500);
    assert!(store.recording().watermarks.is_empty());

    let first_ms = now_ms();
    sink.delivered_to(first_ms).await.expect("delivered");
    store.until("the watermark", |recording| recording.watermarks == (0..4).map(|n| (n, first_ms)).collect()).await;
    assert_eq!(store.recording().source_counts, BTreeSet::from([4]));

    // While the store refuses events, later watermarks are not reported, even with several batches in flight.
    store.refuse(Some(HistoryError::Unavailable("a test".to_owned())));
    sink.deliver(lives(500..550, 1).into()).await.expect("delivered");
    sink.delivered_to(first_ms + 1).await.expect("delivered");
    sink.deliver(lives(550..900, 1).into()).await.expect("delivered");
    // The retries take seconds, and watermarks are reported every second.
    store.until("twelve attempts", |recording| recording.refused >= 12).await;
    assert!(store.recording().watermarks.values().all(|reached| *reached == first_ms));
    store.refuse(None);
    store.until_events(1_900).await;
    store
        .until("the watermark", |recording| recording.watermarks.values().all(|reached| *reached == first_ms + 1))
        .await;
    running.stop().await;
}

#[tokio::test]
async fn q19_a_stop_commits_all_recorded_events() {
    let kafka = TestKafka::shared().await;
    let topic = topic_of(&kafka, "committed");
    let sink = KafkaSink::new(&topic).expect("a sink");
    sink.deliver(lives(0..200, 2).into()).await.expect("delivered");
    let first = RecordingStore::new();
    let running = RunningIndexer::start(&first, &topic);
    first.until_events(400).await;
    running.stop().await;

    sink.deliver(lives(200..300, 2).into()).await.expect("delivered");
    let second = RecordingStore::new();
    let running = RunningIndexer::start(&second, &topic);
    second.until_events(200).await;
    running.stop().await;
}

#[tokio::test]
async fn q19_events_that_the_store_refused_are_not_committed() {
    let kafka = TestKafka::shared().await;
    let topic = topic_of(&kafka, "uncommitted");
    let sink = KafkaSink::new(&topic).expect("a sink");
    sink.deliver(lives(0..200, 2).into()).await.expect("delivered");
    let store = RecordingStore::new();
    store.refuse(Some(HistoryError::Failed("it is broken".to_owned())));
    let ended = RunningIndexer::start(&store, &topic).ended().await.expect_err("the error is permanent");
    assert!(ended.to_string().contains("it is broken"), "{ended}");
    store.refuse(None);
    let running = RunningIndexer::start(&store, &topic);
    store.until_events(400).await;
    running.stop().await;
}

#[tokio::test]
async fn q19_a_long_outage_of_the_store_repeats_and_loses_nothing() {
    let kafka = TestKafka::shared().await;
    let mut topic = topic_of(&kafka, "patient");
    // The group removes a consumer that does not poll for this time; it would then read everything again.
    topic.properties.insert("session.timeout.ms".to_owned(), "6000".to_owned());
    topic.properties.insert("max.poll.interval.ms".to_owned(), "6000".to_owned());
    let sink = KafkaSink::new(&topic).expect("a sink");
    let store = RecordingStore::new();
    let running = RunningIndexer::start_with(&store, IndexerOptions { batch_events_max: 10, ..options(&topic) });
    sink.deliver(lives(0..10, 1).into()).await.expect("delivered");
    store.until_events(10).await;
    store.refuse_for(Duration::from_secs(10));
    sink.deliver(lives(10..500, 2).into()).await.expect("delivered");
    store.until_events(990).await;
    assert_eq!(store.recording().whole_messages(), 500);
    assert!(store.recording().refused > 3, "the store was not unavailable");
    assert_eq!(store.recording().repeated(), 0, "the group removed the indexer");
    running.stop().await;
}

#[tokio::test]
async fn q19_an_indexer_that_starts_first_creates_the_topic() {
    let kafka = TestKafka::shared().await;
    let topic = topic_of(&kafka, "first");
    // The indexer creates the topic, and the relay finds it.
    let store = RecordingStore::new();
    let running = RunningIndexer::start(&store, &topic);
    let sink = KafkaSink::new(&topic).expect("a sink");
    sink.deliver(life("m", 5).into()).await.expect("delivered");
    store.until_events(5).await;
    running.stop().await;
}

#[tokio::test]
async fn q19_losses_reach_the_store_before_the_watermark() {
    let kafka = TestKafka::shared().await;
    let topic = topic_of(&kafka, "losses");
    let sink = KafkaSink::new(&topic).expect("a sink");
    let store = RecordingStore::new();
    let running = RunningIndexer::start(&store, &topic);
    sink.deliver(lives(0..50, 2).into()).await.expect("delivered");
    let queue = |n: usize| QueueName::parse("queue", &format!("q{n}")).expect("a name");
    let loss = |n: usize| Loss { shard: Shard { queue: queue(n), number: 0 }, lost_to_ms: now_ms() };
    let losses: Vec<Loss> = (0..20).map(loss).collect();
    sink.lost(Arc::new(losses.clone())).await.expect("delivered");
    let up_to_ms = now_ms();
    sink.delivered_to(up_to_ms).await.expect("delivered");
    store.until("the watermark", |recording| recording.watermarks == (0..4).map(|n| (n, up_to_ms)).collect()).await;
    let mut recorded = store.recording().losses.clone();
    recorded.sort_by_key(|loss| losses.iter().position(|other| other == loss));
    assert_eq!(recorded, losses);
    running.stop().await;
}
