//! Records that can never be indexed.

use super::topic::{header, records};
use super::*;
use rdkafka::Message;
use rdkafka::config::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use tallystone_indexer::kafka::{KafkaSink, dead_letter_topic};
use tallystone_indexer::wire;
use tokio::time::{Instant, sleep};

/// Writes to the topic as another program.
async fn write(topic: &KafkaOptions, key: &str, kind: Option<&str>, value: &[u8]) {
    let producer: FutureProducer =
        ClientConfig::new().set("bootstrap.servers", &topic.brokers).create().expect("a producer");
    let mut record = FutureRecord::to(&topic.topic).key(key).payload(value).partition(0);
    if let Some(kind) = kind {
        record = record.headers(OwnedHeaders::new().insert(Header { key: "tallystone-type", value: Some(kind) }));
    }
    producer.send(record, DEADLINE).await.expect("written");
}

#[tokio::test]
async fn q19_undecodable_records_become_dead_letters_and_indexing_continues() {
    let kafka = TestKafka::shared().await;
    let topic = topic_of(&kafka, "dead");
    let sink = KafkaSink::new(&topic).expect("a sink");
    sink.deliver(lives(0..20, 2).into()).await.expect("delivered");
    let mut future = life("late", 1).remove(0);
    future.event.at_ms += 10 * 86_400_000;
    let (future, unwanted) = (wire::encode(&future), wire::encode(&life("unwanted", 1)[0]));
    write(&topic, "garbage", Some("event"), b"\xff\xff not protobuf").await;
    write(&topic, "foreign", None, b"{}").await;
    write(&topic, "late", Some("event"), &future).await;
    write(&topic, "watermark", Some("watermark"), b"\xff").await;
    write(&topic, "q/unwanted", Some("event"), &unwanted).await;
    sink.deliver(lives(20..40, 2).into()).await.expect("delivered");

    let store = RecordingStore::new();
    store.reject("unwanted");
    let running = RunningIndexer::start(&store, &topic);
    store.until_events(80).await;
    running.stop().await;
    // Their offsets are committed: the next indexer does not read them.
    sink.deliver(lives(40..60, 2).into()).await.expect("delivered");
    let after = RecordingStore::new();
    let running = RunningIndexer::start(&after, &topic);
    after.until_events(40).await;
    running.stop().await;

    let all = records(&topic.brokers, &dead_letter_topic(&topic)).await;
    let of = |key: &str| {
        let mut found = all.iter().filter(|record| record.key() == Some(key.as_bytes()));
        let record = found.next().unwrap_or_else(|| panic!("no dead letter of {key}"));
        assert!(found.next().is_none(), "{key} twice");
        assert_eq!(header(record, "tallystone-source-topic").as_ref(), Some(&topic.topic));
        assert_eq!(header(record, "tallystone-source-partition").as_deref(), Some("0"));
        let offset = header(record, "tallystone-source-offset").expect("its offset");
        assert!(offset.parse::<u64>().is_ok(), "{offset}");
        (header(record, "tallystone-reason").expect("a reason"), record.payload().expect("its value").to_vec())
    };
    for (key, reason, value) in [
        ("garbage", "malformed", &b"\xff\xff not protobuf"[..]),
        ("foreign", "unknown type", b"{}"),
        ("late", "at_ms", &future),
        ("watermark", "malformed", b"\xff"),
        ("q/unwanted", "unwanted is not wanted", &unwanted),
    ] {
        let (why, what) = of(key);
        assert!(why.contains(reason), "{key}: {why}");
        assert_eq!(what, value, "{key}");
    }
    assert_eq!(all.len(), 5);
}

#[tokio::test]
async fn q19_a_dead_letter_that_is_too_large_carries_only_its_origin() {
    let kafka = TestKafka::shared().await;
    let topic = topic_of(&kafka, "large");
    let sink = KafkaSink::new(&topic).expect("a sink");
    sink.deliver(life("m", 1).into()).await.expect("delivered");
    let producer: FutureProducer = ClientConfig::new()
        .set("bootstrap.servers", &topic.brokers)
        .set("compression.type", "lz4")
        .set("message.max.bytes", "8000000")
        .create()
        .expect("a producer");
    // Small when compressed, large when read.
    let value = vec![0_u8; 4_000_000];
    producer.send(FutureRecord::to(&topic.topic).key("large").payload(&value), DEADLINE).await.expect("written");
    sink.deliver(life("n", 1).into()).await.expect("delivered");
    let store = RecordingStore::new();
    let running = RunningIndexer::start(&store, &topic);
    store.until_events(2).await;
    // It may be in another partition than the events.
    let give_up_at = Instant::now() + DEADLINE;
    let all = loop {
        let all = records(&topic.brokers, &dead_letter_topic(&topic)).await;
        if !all.is_empty() {
            break all;
        }
        assert!(Instant::now() < give_up_at, "no dead letter");
        sleep(Duration::from_millis(50)).await;
    };
    running.stop().await;
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].key(), all[0].payload()), (None, None));
    assert!(header(&all[0], "tallystone-source-offset").is_some());
}
