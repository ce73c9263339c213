//! Pushes through a Kafka topic that a real ingest reads (L2): the process that adds, the broker and the service are killed, and each
//! add counts once.

use super::adder;
use super::folder::{Folder, until_counted, until_pushed};
use super::service::Service;
use crate::crash::machines::Server;
use crate::crash::seed;
use crate::ingest::topics::{Topics, header, now_ms};
use crate::system::program::SOON;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rdkafka::Message;
use std::sync::Arc;
use std::time::Duration;
use tallystone_client::local::{Handle, LocalCounters};
use tallystone_tests::TestKafka;
use tokio::process::Child;
use tokio::time::{Instant, sleep, timeout};

/// Each step of a push, and which of them in the life of a process is the last one: the first transactions write marks.
const STEPS: [(&str, usize); 20] = [
    ("earlier transactions have ended", 1),
    ("a mark is in the transaction", 1),
    ("a transaction is committed", 1),
    ("a mark is new", 1),
    ("totals are read", 2),
    ("cells are on disk", 2),
    ("a push is written", 1),
    ("a push has its name", 2),
    ("files are on disk", 2),
    ("a transaction has begun", 1),
    ("a transaction has begun", 2),
    ("records are in the transaction", 1),
    ("records are in the transaction", 4),
    ("a mark is in the transaction", 3),
    ("a mark is in the transaction", 6),
    ("a transaction is committed", 3),
    ("a transaction is committed", 4),
    ("the log has answered", 1),
    ("a base has moved", 2),
    ("a push is removed", 2),
];
/// A life that does not come to its step in this time fails the test.
const LIFE_MAX: Duration = Duration::from_secs(30);
const BROKER_KILLS: usize = 2;

/// The service, a Kafka, and an ingest between them.
struct Stage {
    service: Service,
    kafka: Arc<TestKafka>,
    ingest: Server,
    topics: Topics,
}

impl Stage {
    async fn start(test: &str, kafka: Arc<TestKafka>) -> Stage {
        let (service, topics) = tokio::join!(Service::start(), Topics::create(kafka.address(), test, 2));
        let (counters, group) = (service.counters.url(), topics.group());
        let mut args = vec!["ingest", "--kafka-brokers", &topics.brokers, "--topic", &topics.source];
        // With a name it has its partitions again at once.
        args.extend(["--group", &group, "--counters", &counters, "--instance", "one", "--log", "error"]);
        let ingest = Server::start_with_metrics(&args).await;
        Stage { service, kafka, ingest, topics }
    }

    fn folder(&self, prefix: &str) -> Folder {
        let mut folder = Folder::new(prefix);
        folder.topics = Some(self.topics.clone());
        folder
    }

    fn process(&self, folder: &Folder, life: u64, die_at: Option<(&str, usize)>) -> Child {
        let (url, dir) = (self.service.counters.url(), folder.dir.path());
        adder::start_with_topic(&url, dir, &folder.prefix, life, die_at, &self.topics)
    }

    /// The sum of the records of a counter. Each push has at most one.
    async fn written(&self, counter: &str) -> i64 {
        let records = self.topics.records(&self.topics.source, 2).await;
        let mut tokens = Vec::new();
        let mut sum = 0;
        for record in records.iter().filter(|record| record.key() == Some(counter.as_bytes())) {
            tokens.push(header(record, "tallystone-push").expect("a token"));
            let add: serde_json::Value = serde_json::from_slice(record.payload().expect("a value")).expect("an add");
            sum += add["delta"].as_i64().expect("a number");
        }
        let all = tokens.len();
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), all, "a push is in the topic twice");
        sum
    }
}

/// Pushes when the test requests it.
async fn open(stage: &Stage, folder: &Folder) -> (LocalCounters, Vec<Handle>) {
    let mut options = adder::options();
    options.push_interval_ms = 1_000_000;
    let counters = folder.open(&stage.service.client, options).await.expect("a sound folder");
    let handle = |namespace| counters.counter(namespace, &folder.prefix).expect("room");
    let handles = ["accurate", "eventual"].map(handle).to_vec();
    (counters, handles)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l2_kill_9_at_each_step_of_a_push_to_a_topic_loses_nothing_and_doubles_nothing() {
    let stage = Stage::start("local-steps", TestKafka::shared().await).await;
    let mut folder = stage.folder("steps");
    for (life, (step, times)) in (0..).zip(STEPS) {
        let mut process = stage.process(&folder, life, Some((step, times)));
        let ended = timeout(LIFE_MAX, process.wait()).await.unwrap_or_else(|_| panic!("{step} is not reached"));
        let status = ended.expect("a child");
        assert!(status.code().is_none(), "it was not killed, but ended: {status}");
        adder::has_opened(folder.dir.path());
        folder.ended(life);
        // Otherwise the next life takes over what this one has left.
        if life % 5 == 4 {
            folder.settle(&stage.service.client).await;
        }
    }
    folder.settle(&stage.service.client).await;
    println!("{} adds, {} in the middle of an add", folder.adds, folder.in_flight);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l2_kills_of_the_broker_lose_no_push_and_double_none() {
    let mut rng = StdRng::seed_from_u64(seed());
    let mut stage = Stage::start("local-broker", Arc::new(TestKafka::start().await)).await;
    let mut folder = stage.folder("broker");
    for round in 0..BROKER_KILLS {
        let life = 2 * round as u64;
        let mut process = stage.process(&folder, life, None);
        adder::until_open(&mut process, folder.dir.path()).await;
        // Some moment in the middle of something.
        sleep(Duration::from_micros(rng.random_range(200_000..900_000))).await;
        stage.kafka.kill().await;
        if round % 2 == 1 {
            // The next process begins without a broker.
            process.kill().await.expect("a child");
            folder.ended(life);
            process = stage.process(&folder, life + 1, None);
            adder::until_open(&mut process, folder.dir.path()).await;
        }
        stage.kafka.start_again().await;
        sleep(Duration::from_micros(rng.random_range(0..600_000))).await;
        process.kill().await.expect("a child");
        adder::has_opened(folder.dir.path());
        folder.ended(life + round as u64 % 2);
        folder.settle(&stage.service.client).await;
    }
    folder.until_rolled_up(&stage.service.client).await;
    stage.ingest.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l2_pushes_are_safe_in_the_topic_while_the_service_is_away() {
    let mut stage = Stage::start("local-away", TestKafka::shared().await).await;
    let folder = stage.folder("away");
    let (counters, handles) = open(&stage, &folder).await;
    stage.service.counters.kill().await;
    for push in [1, 10, 100] {
        handles.iter().for_each(|handle| handle.add(push));
        counters.push().await.expect("only Kafka is needed");
    }
    let stats = counters.stats();
    assert_eq!((stats.pushed_adds, stats.push_failures), (6, 0));
    assert_eq!(stage.written("away").await, 222);
    // The disk is lost: what was pushed is not.
    let begun_ms = now_ms();
    drop((counters, handles, folder));
    stage.service.counters.restart().await;
    stage.topics.until_decided().await;
    for namespace in ["accurate", "eventual"] {
        until_counted(&stage.service.client, namespace, "away", 111).await;
    }
    println!("counted {} ms after the disk was lost", now_ms() - begun_ms);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l2_a_value_has_its_own_adds_while_ingest_counts_them() {
    let stage = Stage::start("local-values", TestKafka::shared().await).await;
    let folder = stage.folder("values");
    let (counters, handles) = open(&stage, &folder).await;
    let (mut added, mut known) = (0, [0; 2]);
    let give_up_at = Instant::now() + SOON;
    // Until each bound was known with pushes that may have counted.
    while known.iter().any(|known| *known < 20) {
        assert!(Instant::now() < give_up_at, "the bounds stay unknown: {known:?}");
        handles.iter().for_each(|handle| handle.add(7));
        added += 7;
        until_pushed(&counters).await;
        counters.pull().await.expect("a service that answers");
        for (handle, known) in handles.iter().zip(&mut known) {
            let reading = handle.get();
            let Some(bound) = reading.error_bound else { continue };
            assert!(reading.value.abs_diff(added) <= bound && reading.value >= added, "{reading:?}, {added} added");
            *known += 1;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l2_a_push_is_kept_for_a_decision_if_kafka_has_forgotten_its_mark() {
    let stage = Stage::start("local-expired", TestKafka::shared().await).await;
    let folder = stage.folder("expired");
    // It is in the topic, and the process does not know it.
    let mut process = stage.process(&folder, 0, Some(("a transaction is committed", 3)));
    let ended = timeout(LIFE_MAX, process.wait()).await.expect("it reaches the step");
    assert!(ended.expect("a child").code().is_none(), "it was killed");
    let (mut before, keys) = (0, ["expired-0", "expired-1", "expired-2"]);
    for counter in keys {
        before += stage.written(counter).await;
    }
    assert!(before != 0, "a push is in the topic");
    let id = std::fs::read(folder.path().join("cells")).expect("the cells");
    let group = group_of(&id, "accurate");
    stage.topics.delete_group(&group).await;
    let (counters, _handles) = open(&stage, &folder).await;
    until_pushed(&counters).await;
    let unresolved = counters.unresolved().expect("a file");
    assert!(!unresolved.is_empty(), "the outcome is unknown");
    assert!(unresolved.iter().all(|add| add.namespace == "accurate" && add.reason == "PUSH_FORGOTTEN"));
    let records = stage.topics.records(&stage.topics.source, 2).await;
    let is_there =
        |token: &String| records.iter().any(|record| header(record, "tallystone-push").as_ref() == Some(token));
    assert!(unresolved.iter().all(|add| is_there(&add.token)), "an operator finds it");
    for counter in keys {
        // No push is there twice.
        stage.written(counter).await;
    }
}

/// The group that has the mark of a namespace.
fn group_of(cells: &[u8], namespace: &str) -> String {
    let id = u64::from_le_bytes(cells[8..16].try_into().expect("eight bytes"));
    format!("tallystone-local.{id:016x}.{namespace}")
}

/// Two processes with one folder: a copy, or a lock that a network file system has lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l2_kafka_refuses_a_process_whose_folder_another_one_has_opened() {
    let stage = Stage::start("local-fenced", TestKafka::shared().await).await;
    let folder = stage.folder("fenced");
    let (counters, handles) = open(&stage, &folder).await;
    handles[0].add(1);
    until_pushed(&counters).await;
    let copy = stage.folder("fenced");
    std::fs::create_dir(copy.path()).expect("room");
    for file in std::fs::read_dir(folder.path()).expect("a folder") {
        let file = file.expect("a file");
        std::fs::copy(file.path(), copy.path().join(file.file_name())).expect("room");
    }
    let (copied, copied_handles) = open(&stage, &copy).await;
    copied_handles[0].add(10);
    until_pushed(&copied).await;
    handles[0].add(100);
    let refused = counters.push().await.expect_err("Kafka refuses the earlier one");
    println!("{refused}");
    assert_eq!(stage.written("fenced").await, 11);
    until_pushed(&counters).await;
    let unresolved = counters.unresolved().expect("a file");
    let kept: Vec<_> = unresolved.iter().map(|add| (add.delta, &*add.reason)).collect();
    assert_eq!(kept, [(100, "PUSH_FORGOTTEN")], "the mark is that of the other one");
    assert_eq!(stage.written("fenced").await, 11);
}
