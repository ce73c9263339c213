//! Topics of groups of queues.

use super::*;
use tallystone_assembly::{Config, indexer};
use tallystone_indexer::kafka::KafkaSink;
use tallystone_indexer::{Elastic, HistoryGroup, HistoryStore, SearchQuery};
use tallystone_serving::Running;
use tallystone_tests::TestElasticsearch;
use tokio::net::TcpListener;

/// The first events of a message of this queue.
fn of_queue(queue: &str, name: &str, versions: u32) -> Vec<Recorded> {
    let shard = Shard::first(&QueueName::parse("queue", queue).expect("a valid name"));
    let moved = |recorded: Recorded| Recorded { shard: shard.clone(), ..recorded };
    life(name, versions).into_iter().map(moved).collect()
}

fn also(topic: &KafkaOptions, name: &str) -> KafkaOptions {
    KafkaOptions { topic: format!("{}.{name}", topic.topic), ..topic.clone() }
}

#[tokio::test]
async fn q19_the_events_of_a_queue_are_in_the_topic_of_its_longest_prefix() {
    let kafka = TestKafka::shared().await;
    let others = topic_of(&kafka, "routed");
    let (billing, europe) = (also(&others, "billing"), also(&others, "europe"));
    let routes = [("billing/", &billing), ("billing/eu/", &europe)];
    let routes = routes.map(|(prefix, topic)| (prefix.to_owned(), topic.topic.clone()));
    let sink = KafkaSink::with_topics(&others, &routes).expect("a sink");
    let topics = [&others, &billing, &europe];
    let stores = topics.map(|_| RecordingStore::new());
    let running: Vec<_> =
        topics.iter().zip(&stores).map(|(topic, store)| RunningIndexer::start(store, topic)).collect();
    let queues = [("orders", 0), ("billing", 0), ("billing/us", 1), ("billing/eu/x", 2), ("billing/eu", 1)];
    let events: Vec<Recorded> = queues
        .iter()
        .flat_map(|(queue, _)| (0..20).flat_map(move |n| of_queue(queue, &format!("{queue}-{n}"), 2)))
        .collect();
    sink.deliver(events.into()).await.expect("delivered");
    let losses: Vec<Loss> = queues
        .iter()
        .map(|(queue, _)| Loss { shard: of_queue(queue, "m", 1)[0].shard.clone(), lost_to_ms: now_ms() })
        .collect();
    sink.lost(Arc::new(losses)).await.expect("delivered");
    let up_to_ms = now_ms();
    sink.delivered_to(up_to_ms).await.expect("delivered");
    for (number, store) in stores.iter().enumerate() {
        store.until("the watermark", |recording| recording.watermarks == (0..4).map(|n| (n, up_to_ms)).collect()).await;
        let recording = store.recording();
        let own = queues.iter().filter(|(_, topic)| *topic == number).count();
        assert_eq!((recording.whole_messages(), recording.losses.len()), (own * 20, own), "topic {number}");
    }
    for indexer in running {
        indexer.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q19_one_indexer_reads_the_topics_of_all_groups() {
    let (kafka, elasticsearch) = tokio::join!(TestKafka::shared(), TestElasticsearch::shared());
    let topic = topic_of(&kafka, "groups");
    let mut config = Config::default();
    config.kafka.brokers = Some(kafka.address());
    config.kafka.topic = topic.topic.clone();
    config.kafka.partitions = 4;
    config.elasticsearch.url = Some(elasticsearch.address());
    config.elasticsearch.index_prefix = topic.topic.clone();
    config.elasticsearch.replicas = 0;
    config.indexer.group = topic.topic.clone();
    let group = |name: &str, own: bool| HistoryGroup {
        name: name.to_owned(),
        prefix: format!("{name}/"),
        topic: own.then(|| also(&topic, name).topic),
        retention_ms: None,
    };
    config.history.groups = vec![group("billing", true), group("mail", false)];

    let sink = KafkaSink::with_topics(&topic, &config.history.topics(&topic.topic)).expect("a sink");
    let store = Elastic::new(config.elasticsearch.options(&config.history).expect("an address")).expect("good options");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let mut running = Running::start(indexer(&config).expect("a host"), listener).expect("it runs");
    let queues = ["orders", "billing/us", "mail/out"];
    let events: Vec<Recorded> = queues.iter().flat_map(|queue| of_queue(queue, "m", 3)).collect();
    sink.deliver(events.into()).await.expect("delivered");
    let up_to_ms = now_ms();
    sink.delivered_to(up_to_ms).await.expect("delivered");
    // "As of" is that of the slowest topic.
    let advanced = async {
        // A new index does not answer until it has its shards.
        while !matches!(store.watermark().await, Ok(at) if at >= Some(up_to_ms)) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = advanced => {}
        ended = running.ended() => panic!("the indexer has ended: {ended:?}"),
        () = tokio::time::sleep(DEADLINE) => panic!("'As of' does not advance"),
    }
    let all = store.search(&SearchQuery { limit: 10, ..SearchQuery::default() }).await.expect("an answer");
    let mut found: Vec<(&str, u32)> = all.iter().map(|message| (message.queue.as_str(), message.version)).collect();
    found.sort();
    assert_eq!(found, [("billing/us", 3), ("mail/out", 3), ("orders", 3)]);
    running.stop().await.expect("a clean end");
}
