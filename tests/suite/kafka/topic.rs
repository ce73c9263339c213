//! The records on the topic, as the head of event.proto documents them for other consumers.

use super::*;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Headers, Message, OwnedMessage};
use rdkafka::{Offset, TopicPartitionList};
use std::collections::{BTreeMap, BTreeSet};
use tallystone_indexer::kafka::KafkaSink;
use tallystone_indexer::wire;

/// Every record of a topic, in the order of each partition.
pub(super) async fn records(brokers: &str, topic: &str) -> Vec<OwnedMessage> {
    let (brokers, topic) = (brokers.to_owned(), topic.to_owned());
    let read = move || {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", brokers).set("group.id", "tests").set("enable.partition.eof", "true");
        let consumer: BaseConsumer = config.set("enable.auto.commit", "false").create().expect("a consumer");
        let metadata = consumer.fetch_metadata(Some(&topic), DEADLINE).expect("metadata");
        let mut partitions = TopicPartitionList::new();
        let numbers: Vec<i32> = metadata.topics()[0].partitions().iter().map(|partition| partition.id()).collect();
        for number in &numbers {
            partitions.add_partition_offset(&topic, *number, Offset::Beginning).expect("an offset");
        }
        consumer.assign(&partitions).expect("an assignment");
        let (mut ends, mut all) = (0, Vec::new());
        while ends < numbers.len() {
            match consumer.poll(DEADLINE).expect("a record in time") {
                Ok(record) => all.push(record.detach()),
                Err(KafkaError::PartitionEOF(_)) => ends += 1,
                Err(error) => panic!("{error}"),
            }
        }
        all
    };
    tokio::task::spawn_blocking(read).await.expect("it does not panic")
}

/// The value of a record's header.
pub(super) fn header(record: &OwnedMessage, name: &str) -> Option<String> {
    let header = record.headers()?.iter().find(|header| header.key == name)?;
    Some(String::from_utf8_lossy(header.value?).into_owned())
}

#[tokio::test]
async fn q19_records_on_the_topic_match_the_documentation() {
    let kafka = TestKafka::shared().await;
    let options = topic_of(&kafka, "layout");
    let sink = KafkaSink::new(&options).expect("a sink");
    let events = lives(0..50, 3);
    sink.deliver(events.clone().into()).await.expect("delivered");
    let up_to_ms = now_ms();
    sink.delivered_to(up_to_ms).await.expect("delivered");

    let mut seen: BTreeMap<String, (i32, Vec<u32>)> = BTreeMap::new();
    let (mut read, mut watermarks) = (Vec::new(), BTreeSet::new());
    for record in records(&options.brokers, &options.topic).await {
        let value = record.payload().expect("a value");
        match header(&record, "tallystone-type").as_deref() {
            Some("event") => {
                let recorded = wire::decode(value, now_ms()).expect("an event");
                let key = String::from_utf8_lossy(record.key().expect("a key")).into_owned();
                assert_eq!(key, format!("q/{}", recorded.event.id));
                assert_eq!(record.timestamp().to_millis(), Some(recorded.event.at_ms as i64));
                assert!(!watermarks.contains(&record.partition()), "an event after the watermark");
                let (partition, versions) = seen.entry(key).or_insert((record.partition(), Vec::new()));
                assert_eq!(*partition, record.partition(), "one message, one partition");
                versions.push(recorded.event.version);
                read.push(recorded);
            }
            Some("watermark") => {
                assert_eq!(record.key(), None);
                assert_eq!(wire::decode_watermark(value, now_ms()), Ok(up_to_ms));
                assert!(watermarks.insert(record.partition()), "one for each partition");
            }
            other => panic!("unknown type {other:?}"),
        }
    }
    assert!(seen.values().all(|(_, versions)| *versions == [1, 2, 3]), "in order");
    assert_eq!(watermarks, BTreeSet::from([0, 1, 2, 3]));
    let used: BTreeSet<i32> = seen.values().map(|(partition, _)| *partition).collect();
    assert_eq!(used.len(), 4, "all partitions are used");
    read.sort_by_key(|recorded| recorded.offset);
    let mut events = events;
    events.sort_by_key(|recorded| recorded.offset);
    assert_eq!(read, events);
}

/// Delivers as a relay does: repeats until it succeeds.
async fn deliver_at_last(sink: &KafkaSink, events: &[Recorded]) {
    let attempts = async { while sink.deliver(events.to_vec().into()).await.is_err() {} };
    tokio::time::timeout(DEADLINE, attempts).await.expect("delivered in time");
}

#[tokio::test]
async fn q19_a_sink_fails_without_kafka_and_delivers_after_its_return() {
    let kafka = TestKafka::start().await;
    let mut options = topic_of(&kafka, "away");
    options.properties.insert("message.timeout.ms".to_owned(), "1000".to_owned());
    kafka.kill().await;
    let sink = KafkaSink::new(&options).expect("a sink needs no Kafka");
    let events = lives(0..10, 2);
    let error = sink.deliver(events.clone().into()).await.expect_err("Kafka is down");
    assert!(error.to_string().contains("Kafka"), "{error}");
    kafka.start_again().await;
    deliver_at_last(&sink, &events).await;

    kafka.kill().await;
    sink.deliver(events.clone().into()).await.expect_err("Kafka is down");
    kafka.start_again().await;
    deliver_at_last(&sink, &events).await;

    let written: BTreeSet<_> = records(&options.brokers, &options.topic)
        .await
        .iter()
        .map(|record| wire::decode(record.payload().unwrap_or_default(), now_ms()).expect("an event").offset)
        .collect();
    assert_eq!(written.len(), events.len());
}

#[tokio::test]
async fn q19_a_delivery_may_exceed_the_producers_buffer() {
    let kafka = TestKafka::shared().await;
    let mut options = topic_of(&kafka, "narrow");
    options.properties.insert("queue.buffering.max.messages".to_owned(), "10".to_owned());
    let sink = KafkaSink::new(&options).expect("a sink");
    sink.deliver(lives(0..300, 1).into()).await.expect("delivered");
    assert_eq!(records(&options.brokers, &options.topic).await.len(), 300);
}
