//! What brings the records of each region to the others: as MirrorMaker 2 does, into another topic, but it also repeats records and
//! writes them in another order.

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::message::{Message, OwnedMessage};
use rdkafka::producer::{FutureProducer, FutureRecord};
use std::time::Duration;
use tallystone_kafka::{KafkaOptions, TopicFollower};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

const DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);
/// Of the topics of regions.
const PARTITIONS: usize = 3;
/// Records that are reordered together.
const SHUFFLED: usize = 40;
/// Earlier records of which some are sent once more.
const KEPT: usize = 2_000;

fn config(brokers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers);
    config
}

/// Creates a topic that keeps the latest record of each key.
pub(super) async fn create(brokers: &str, topic: &str) {
    let admin: AdminClient<DefaultClientContext> = config(brokers).create().expect("a client");
    let topic = NewTopic::new(topic, PARTITIONS as i32, TopicReplication::Fixed(1)).set("cleanup.policy", "compact");
    let options = AdminOptions::new().operation_timeout(Some(DEADLINE));
    admin.create_topics([&topic], &options).await.expect("a response")[0].as_ref().expect("a new topic");
}

/// Writes one record.
pub(super) async fn send(brokers: &str, topic: &str, key: &str, value: &str) {
    let producer: FutureProducer = config(brokers).create().expect("a producer");
    let record = FutureRecord::to(topic).key(key).payload(value);
    producer.send(record, DEADLINE).await.map_err(|(error, _)| error).expect("written");
}

/// Mirrors topics, each into another one, until it is dropped.
pub(super) struct Mirror {
    running: watch::Sender<bool>,
    tasks: Vec<(String, JoinHandle<()>)>,
}

impl Mirror {
    pub(super) fn start(brokers: &str, pairs: &[(String, String)], seed: u64) -> Mirror {
        let (running, mut tasks) = (watch::Sender::new(true), Vec::new());
        for (number, (from, to)) in pairs.iter().enumerate() {
            let random = StdRng::seed_from_u64(seed + number as u64);
            let mirrored = mirror(brokers.to_owned(), from.clone(), to.clone(), random, running.subscribe());
            tasks.push((format!("{from} to {to}"), tokio::spawn(mirrored)));
        }
        Mirror { running, tasks }
    }

    /// Nothing is mirrored meanwhile.
    pub(super) fn pause(&self, is_paused: bool) {
        self.running.send_replace(!is_paused);
    }

    /// Panics if a topic is mirrored no longer.
    pub(super) fn check(&self) {
        for (pair, task) in &self.tasks {
            assert!(!task.is_finished(), "the mirror of {pair} has ended");
        }
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.tasks.iter().for_each(|(_, task)| task.abort());
    }
}

/// Reads a topic from its beginning, once its region has created it. In no group: the drop of a member waits for its coordinator,
/// and with it the end of the test.
async fn follow(brokers: &str, topic: &str) -> TopicFollower {
    let options = KafkaOptions { brokers: brokers.to_owned(), ..KafkaOptions::default() };
    let follower = TopicFollower::new(&options, &[topic.to_owned()], "mirror").expect("a reader");
    let give_up_at = Instant::now() + DEADLINE;
    loop {
        let found = follower.partitions().await;
        if let Ok(partitions) = &found
            && partitions.len() == PARTITIONS
        {
            let begin = partitions.iter().map(|(topic, partition)| (topic.clone(), *partition, None));
            follower.read_from(&begin.collect::<Vec<_>>()).expect("a reader");
            return follower;
        }
        assert!(Instant::now() < give_up_at, "not in time: {topic} has its partitions; {found:?}");
        sleep(POLL).await;
    }
}

async fn mirror(brokers: String, from: String, to: String, mut random: StdRng, mut running: watch::Receiver<bool>) {
    let follower = follow(&brokers, &from).await;
    let producer: FutureProducer = config(&brokers).set("linger.ms", "1").create().expect("a producer");
    let (mut kept, mut batch): (Vec<OwnedMessage>, Vec<OwnedMessage>) = (Vec::new(), Vec::new());
    loop {
        running.wait_for(|running| *running).await.expect("a mirror");
        let is_full = match timeout(POLL, follower.next()).await {
            Ok(record) => {
                // A broker on a busy machine may be away for a moment.
                batch.extend(record.ok().map(|record| record.detach()));
                batch.len() >= SHUFFLED
            }
            Err(_) => true,
        };
        if !is_full || batch.is_empty() {
            continue;
        }
        for record in &batch {
            kept.push(record.clone());
        }
        for _ in 0..random.random_range(0..batch.len()) {
            batch.push(kept[random.random_range(0..kept.len())].clone());
        }
        batch.shuffle(&mut random);
        // Some come with the next ones.
        let later = if random.random_bool(0.3) { random.random_range(0..batch.len()) } else { 0 };
        for record in batch.drain(later..) {
            let (key, value) = (record.key().expect("a key"), record.payload().expect("a value"));
            let record = FutureRecord::to(&to).key(key).payload(value);
            producer.send(record, DEADLINE).await.map_err(|(error, _)| error).expect("written");
        }
        if kept.len() > KEPT {
            kept.drain(..KEPT / 2);
        }
    }
}
