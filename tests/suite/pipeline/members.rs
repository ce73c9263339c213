//! An indexer that is killed costs the others of its group nothing but a short wait.

use super::indexer::Indexer;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tallystone_indexer::kafka::{KafkaSink, WATERMARK_EVERY};
use tallystone_indexer::{Elastic, ElasticOptions, HistoryError, HistoryStore};
use tallystone_kafka::KafkaOptions;
use tallystone_model::Sink;
use tallystone_tests::{TestElasticsearch, TestKafka};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::task::AbortOnDropHandle;

/// How long "As of" may stay unchanged after an indexer was killed: it takes about 10 s, and may take longer on a busy machine.
/// With the default of Kafka's clients it would be 45 s.
const TAKEN_OVER: Duration = Duration::from_secs(40);
/// How long the first distribution of the partitions may take.
const SETTLED: Duration = Duration::from_secs(120);
/// A group without these properties takes a member for dead whose process needs 8 s to start, as on a slow machine.
const PATIENT: (&str, &str) = ("TALLYSTONE_KAFKA_PROPERTIES", "[\"session.timeout.ms=60000\"]");
const POLL: Duration = Duration::from_millis(50);
const KILLS: usize = 2;

/// Two indexers of one group, and a relay that writes watermarks into their topic.
struct Group {
    indexers: [Indexer; 2],
    store: Elastic,
    _relay: AbortOnDropHandle<()>,
    _services: (Arc<TestKafka>, Arc<TestElasticsearch>),
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64
}

impl Group {
    /// Returns once each indexer has two of the four partitions, and "As of" advances.
    async fn start(test: &str, further: &[(&'static str, &str)]) -> Group {
        let (kafka, elasticsearch) = tokio::join!(TestKafka::shared(), TestElasticsearch::shared());
        let name = format!("{test}-{:08x}", rand::random::<u32>());
        let topic =
            KafkaOptions { brokers: kafka.address(), topic: name.clone(), partitions: 4, ..KafkaOptions::default() };
        let indexers = ["one", "two"].map(|instance| {
            let settings = [
                ("TALLYSTONE_KAFKA_TOPIC", name.as_str()),
                ("TALLYSTONE_INDEXER_GROUP", &name),
                ("TALLYSTONE_INDEXER_INSTANCE", instance),
                ("TALLYSTONE_ELASTICSEARCH_INDEX_PREFIX", &name),
            ];
            Indexer::new(kafka.address(), elasticsearch.address(), &[&settings, further].concat())
        });
        let options =
            ElasticOptions { prefix: name.clone(), replicas: 0, ..ElasticOptions::new(elasticsearch.address()) };
        let store = Elastic::new(options).expect("good options");
        let relay = AbortOnDropHandle::new(tokio::spawn(relay(topic)));
        let mut group = Group { indexers, store, _relay: relay, _services: (kafka, elasticsearch) };
        for indexer in &mut group.indexers {
            indexer.start().await;
        }
        let give_up_at = Instant::now() + SETTLED;
        while group.partitions().await != [2, 2] {
            assert!(Instant::now() < give_up_at, "the partitions are not divided: {:?}", group.partitions().await);
            sleep(POLL).await;
        }
        group.passes(now_ms(), SETTLED).await;
        group
    }

    /// How many partitions each indexer has.
    async fn partitions(&self) -> [u64; 2] {
        let [one, two] = &self.indexers;
        [one.metric("tallystone_indexer_partitions").await, two.metric("tallystone_indexer_partitions").await]
    }

    /// Waits until "As of" has passed this time. Returns how long that took. On a busy machine a new index takes longer to
    /// start than a read waits for it.
    async fn passes(&self, time_ms: u64, within: Duration) -> Duration {
        let begin = Instant::now();
        loop {
            match self.store.watermark().await {
                Ok(as_of) if as_of > Some(time_ms) => return begin.elapsed(),
                Ok(_) | Err(HistoryError::Unavailable(_)) if begin.elapsed() < within => sleep(POLL).await,
                other => panic!("'As of' has not advanced for {within:?}: {other:?}"),
            }
        }
    }
}

/// Writes watermarks as a relay does.
async fn relay(topic: KafkaOptions) {
    let sink = KafkaSink::new(&topic).expect("a sink");
    let mut ticks = interval(WATERMARK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // The indexers may not have created the topic yet.
        let _ = sink.delivered_to(now_ms()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q19_the_other_indexer_takes_over_soon_each_time_one_is_killed() {
    let mut group = Group::start("takeover", &[]).await;
    for kill in 0..KILLS {
        let victim = kill % 2;
        group.indexers[victim].kill().await;
        // Until then the partitions of the dead one do not advance.
        let stalled = group.passes(now_ms(), TAKEN_OVER).await;
        println!("kill {kill}: the other indexer took over after {stalled:?}");
        group.indexers[victim].start().await;
        group.passes(now_ms(), TAKEN_OVER).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q19_an_indexer_that_is_killed_again_and_again_costs_the_other_no_rebalance() {
    let mut group = Group::start("flapping", &[PATIENT]).await;
    let before = group.indexers[0].metric("tallystone_indexer_rebalances_total").await;
    assert!(before > 0, "it counts");
    for kill in 0..2 * KILLS {
        group.indexers[1].kill().await;
        group.indexers[1].start().await;
        let stalled = group.passes(now_ms(), SETTLED).await;
        println!("kill {kill}: its partitions went on after {stalled:?}");
    }
    assert_eq!(group.indexers[0].metric("tallystone_indexer_rebalances_total").await, before);
    assert_eq!(group.partitions().await, [2, 2]);
}
