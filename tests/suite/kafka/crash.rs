//! Kafka is killed and restarts.

use super::*;
use std::sync::atomic::AtomicBool;
use tallystone_indexer::kafka::KafkaSink;

#[tokio::test]
async fn q19_a_killed_kafka_loses_nothing_that_it_acknowledged() {
    let kafka = TestKafka::start().await;
    let mut topic = topic_of(&kafka, "killed");
    // An attempt ends soon after Kafka was killed.
    topic.properties.insert("message.timeout.ms".to_owned(), "3000".to_owned());
    let store = RecordingStore::new();
    let running = RunningIndexer::start(&store, &topic);
    let sink = KafkaSink::new(&topic).expect("a sink");
    let mut messages = 0;
    for _ in 0..3 {
        let is_back = AtomicBool::new(false);
        let deliver = async {
            let mut delivered_after = 0;
            while !is_back.load(Ordering::SeqCst) || delivered_after < 5 {
                let events = lives(messages..messages + 20, 3);
                while sink.deliver(events.clone().into()).await.is_err() {}
                messages += 20;
                delivered_after += usize::from(is_back.load(Ordering::SeqCst));
            }
        };
        let kill = async {
            let before = store.recording().events.len();
            store.until("a delivery in progress", |recording| recording.events.len() > before + 100).await;
            kafka.kill().await;
            // Longer than one attempt takes.
            sink.delivered_to(now_ms()).await.expect_err("Kafka is down");
            kafka.start_again().await;
            is_back.store(true, Ordering::SeqCst);
        };
        tokio::join!(deliver, kill);
    }
    let up_to_ms = now_ms();
    while sink.delivered_to(up_to_ms).await.is_err() {}
    store.until_events(messages * 3).await;
    assert_eq!(store.recording().whole_messages(), messages);
    store.until("the watermark", |recording| recording.watermarks == (0..4).map(|n| (n, up_to_ms)).collect()).await;
    running.stop().await;
}

#[tokio::test]
async fn q19_an_indexer_stops_while_kafka_is_down() {
    let kafka = TestKafka::start().await;
    let topic = topic_of(&kafka, "gone");
    let store = RecordingStore::new();
    let running = RunningIndexer::start(&store, &topic);
    let sink = KafkaSink::new(&topic).expect("a sink");
    sink.deliver(life("m", 3).into()).await.expect("delivered");
    store.until_events(3).await;
    kafka.kill().await;
    running.stop().await;
    // So does an indexer that has never reached Kafka.
    RunningIndexer::start(&store, &topic).stop().await;
}
