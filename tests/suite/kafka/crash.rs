//! Kafka dies and comes back.

use super::*;
use std::sync::atomic::AtomicBool;
use tallystone_indexer::kafka::KafkaSink;

#[tokio::test]
async fn q19_a_killed_kafka_loses_nothing_that_it_acknowledged() {
    let kafka = TestKafka::start().await;
    let mut topic = topic_of(&kafka, "killed");
    // So that a try ends soon after Kafka has died.
    topic.properties.insert("message.timeout.ms".to_owned(), "3000".to_owned());
    let keeper = Keeper::new();
    let running = Running::start(&keeper, &topic);
    let sink = KafkaSink::new(&topic).expect("a sink");
    let mut messages = 0;
    for _ in 0..3 {
        let is_back = AtomicBool::new(false);
        let deliver = async {
            let mut went_on = 0;
            while !is_back.load(Ordering::SeqCst) || went_on < 5 {
                let events = lives(messages..messages + 20, 3);
                while sink.deliver(events.clone().into()).await.is_err() {}
                messages += 20;
                went_on += usize::from(is_back.load(Ordering::SeqCst));
            }
        };
        let kill = async {
            let before = keeper.kept().events.len();
            keeper.until("work in progress", |kept| kept.events.len() > before + 100).await;
            kafka.kill().await;
            // Away for longer than a try takes.
            sink.delivered_to(now_ms()).await.expect_err("there is no Kafka");
            kafka.start_again().await;
            is_back.store(true, Ordering::SeqCst);
        };
        tokio::join!(deliver, kill);
    }
    let up_to_ms = now_ms();
    while sink.delivered_to(up_to_ms).await.is_err() {}
    keeper.until_events(messages * 3).await;
    assert_eq!(keeper.kept().whole_messages(), messages);
    keeper.until("the watermark", |kept| kept.reached == (0..4).map(|n| (n, up_to_ms)).collect()).await;
    running.stop().await;
}

#[tokio::test]
async fn q19_an_indexer_ends_when_asked_to_without_kafka_too() {
    let kafka = TestKafka::start().await;
    let topic = topic_of(&kafka, "gone");
    let keeper = Keeper::new();
    let running = Running::start(&keeper, &topic);
    let sink = KafkaSink::new(&topic).expect("a sink");
    sink.deliver(life("m", 3).into()).await.expect("delivered");
    keeper.until_events(3).await;
    kafka.kill().await;
    running.stop().await;
    // And one that has never found any.
    Running::start(&keeper, &topic).stop().await;
}
