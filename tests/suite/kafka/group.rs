//! Several indexers of one group: partitions go from one to the other.

use super::*;
use tallystone_indexer::kafka::KafkaSink;

/// Delivers message after message until it is told to stop; how many.
fn pour(topic: &KafkaOptions) -> (CancellationToken, JoinHandle<usize>) {
    let stop = CancellationToken::new();
    let (sink, stopped) = (KafkaSink::new(topic).expect("a sink"), stop.clone());
    let pouring = tokio::spawn(async move {
        let mut count = 0;
        while !stopped.is_cancelled() {
            // A relay gives all again that it is not told of as delivered.
            let events = lives(count..count + 20, 3);
            while sink.deliver(events.clone().into()).await.is_err() {}
            count += 20;
        }
        count
    });
    (stop, pouring)
}

#[tokio::test]
async fn q19_a_second_indexer_takes_its_part_and_the_first_ones_death_gives_it_all() {
    let kafka = TestKafka::shared().await;
    let topic = topic_of(&kafka, "group");
    let (stop, pouring) = pour(&topic);
    let (first, second) = (Keeper::new(), Keeper::new());
    let dying = Running::start(&first, &topic);
    first.until("something", |kept| kept.events.len() > 300).await;
    let living = Running::start(&second, &topic);
    second.until("its part", |kept| kept.events.len() > 300).await;
    let before = first.kept().events.len();
    first.until("the first goes on", |kept| kept.events.len() > before + 300).await;
    // In the middle of its work, with nothing said to Kafka of what it did last.
    dying.kill().await;
    stop.cancel();
    let messages = pouring.await.expect("it does not panic");
    let all = || first.kept().events.keys().chain(second.kept().events.keys()).cloned().collect::<Vec<_>>();
    second
        .until("the rest", |kept| {
            let first = first.kept();
            let only_first = first.events.keys().filter(|key| !kept.events.contains_key(*key)).count();
            kept.events.len() + only_first == messages * 3
        })
        .await;
    let mut all = all();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), messages * 3);
    living.stop().await;
}

#[tokio::test]
async fn q19_indexers_that_come_and_go_lose_nothing() {
    let kafka = TestKafka::shared().await;
    let topic = topic_of(&kafka, "comeandgo");
    let (stop, pouring) = pour(&topic);
    let keeper = Keeper::new();
    let mut running = vec![Running::start(&keeper, &topic)];
    for round in 0..6 {
        let before = keeper.kept().events.len();
        keeper.until("it goes on", |kept| kept.events.len() > before + 300).await;
        running.push(Running::start(&keeper, &topic));
        if running.len() > 2 {
            let oldest = running.remove(0);
            if round % 2 == 0 { oldest.kill().await } else { oldest.stop().await }
        }
    }
    stop.cancel();
    let messages = pouring.await.expect("it does not panic");
    keeper.until_events(messages * 3).await;
    assert_eq!(keeper.kept().whole_messages(), messages);
    for indexer in running {
        indexer.stop().await;
    }
}
