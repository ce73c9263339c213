//! A topic that was deleted and created again: the indexer reads all of the new one.

use super::*;
use rdkafka::TopicPartitionList;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use tallystone_indexer::kafka::KafkaSink;

/// A topic with one partition, so that all events before an offset are in it.
fn one_partition(kafka: &TestKafka, test: &str) -> KafkaOptions {
    KafkaOptions { partitions: 1, ..topic_of(kafka, test) }
}

fn client(topic: &KafkaOptions) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &topic.brokers).set("group.id", &topic.topic);
    config
}

/// Deletes the topic. Returns once Kafka has done it.
async fn delete(topic: &KafkaOptions) {
    let admin: AdminClient<DefaultClientContext> = client(topic).create().expect("a client");
    let options = AdminOptions::new().operation_timeout(Some(DEADLINE));
    for deleted in admin.delete_topics(&[&topic.topic], &options).await.expect("a response") {
        deleted.expect("deleted");
    }
}

/// The committed offsets of the group, with their metadata.
fn committed(topic: &KafkaOptions) -> TopicPartitionList {
    let consumer: BaseConsumer = client(topic).create().expect("a consumer");
    let mut partitions = TopicPartitionList::new();
    partitions.add_partition(&topic.topic, 0);
    consumer.committed_offsets(partitions, DEADLINE).expect("offsets")
}

/// Creates the topic again and delivers these messages into it, as a relay does.
async fn recreate(topic: &KafkaOptions, messages: std::ops::Range<usize>) {
    let sink = KafkaSink::new(topic).expect("a sink");
    let events = lives(messages, 1);
    while sink.deliver(events.clone().into()).await.is_err() {}
}

#[tokio::test]
async fn q19_an_indexer_that_was_unavailable_reads_all_of_a_topic_that_was_created_again() {
    let kafka = TestKafka::shared().await;
    let topic = one_partition(&kafka, "again");
    let store = RecordingStore::new();
    let running = RunningIndexer::start(&store, &topic);
    KafkaSink::new(&topic).expect("a sink").deliver(lives(0..300, 1).into()).await.expect("delivered");
    store.until_events(300).await;
    running.stop().await;
    let before = committed(&topic);

    delete(&topic).await;
    recreate(&topic, 1_000..1_400).await;
    // Kafka forgets the offsets of a deleted topic, but a member that had not noticed commits them again.
    let member: BaseConsumer = client(&topic).create().expect("a consumer");
    member.commit(&before, CommitMode::Sync).expect("committed");
    let running = RunningIndexer::start(&store, &topic);
    store.until_events(700).await;
    running.stop().await;
}

#[tokio::test]
async fn q19_an_indexer_at_work_reads_all_of_a_topic_that_was_created_again() {
    let kafka = TestKafka::shared().await;
    let topic = one_partition(&kafka, "meanwhile");
    let store = RecordingStore::new();
    let running = RunningIndexer::start(&store, &topic);
    let sink = KafkaSink::new(&topic).expect("a sink");
    sink.deliver(lives(0..300, 1).into()).await.expect("delivered");
    store.until_events(300).await;
    for round in 1..=3 {
        delete(&topic).await;
        recreate(&topic, round * 1_000..round * 1_000 + 300 + round * 100).await;
        let count = 300 + (1..=round).map(|round| 300 + round * 100).sum::<usize>();
        store.until_events(count).await;
    }
    let up_to_ms = now_ms();
    KafkaSink::new(&topic).expect("a sink").delivered_to(up_to_ms).await.expect("delivered");
    store.until("the watermark", |recording| recording.watermarks.get(&0) == Some(&up_to_ms)).await;
    running.stop().await;
}

#[tokio::test]
async fn q19_positions_in_an_unchanged_topic_are_kept() {
    let kafka = TestKafka::shared().await;
    let topic = one_partition(&kafka, "unchanged");
    let store = RecordingStore::new();
    let sink = KafkaSink::new(&topic).expect("a sink");
    for round in 0..3 {
        let running = RunningIndexer::start(&store, &topic);
        sink.deliver(lives(round * 100..(round + 1) * 100, 1).into()).await.expect("delivered");
        store.until_events((round + 1) * 100).await;
        running.stop().await;
    }
    assert_eq!(store.recording().repeated(), 0, "read again");
    let last = committed(&topic);
    let metadata = last.find_partition(&topic.topic, 0).expect("an offset").metadata().to_owned();
    assert!(metadata.parse::<tallystone_kafka::RecordMark>().is_ok(), "{metadata:?}");
}
