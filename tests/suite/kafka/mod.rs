//! The sink and the indexer on a real Kafka (Q19). What lives here: the records on the topic, the events that the indexer
//! hands to a store, both during crashes, and the view counter with its log in Kafka (`views`). What may not: how a store keeps events.

mod crash;
mod dead_letters;
pub(crate) mod foreign;
mod group;
mod indexing;
mod recording;
mod recreated;
mod topic;
mod topics;
pub(crate) mod views;

use recording::{DEADLINE, RecordingStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tallystone_indexer::kafka::{IndexerError, IndexerOptions, run};
use tallystone_kafka::KafkaOptions;
use tallystone_model::*;
use tallystone_tests::{TestKafka, id};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A topic for one test, with four partitions.
fn topic_of(kafka: &TestKafka, test: &str) -> KafkaOptions {
    let brokers = kafka.address();
    // Unique with the process id: one process starts each test once.
    let topic = format!("{test}-{}-{}", std::process::id(), now_ms());
    KafkaOptions { brokers, topic, partitions: 4, ..KafkaOptions::default() }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64
}

/// The first `versions` events of a message: enqueued, then leased and released repeatedly.
fn life(name: &str, versions: u32) -> Vec<Recorded> {
    static OFFSET: AtomicU64 = AtomicU64::new(0);
    let enqueued_at_ms = now_ms();
    let event = |version: u32| {
        let (from, to, by) = match version {
            1 => (None, State::Pending, Cause::Enqueue),
            even if even % 2 == 0 => (Some(State::Pending), State::Running, Cause::Dequeue),
            _ => (Some(State::Running), State::Pending, Cause::Release),
        };
        Event {
            id: id(name),
            version,
            from,
            to: Some(to),
            by,
            at_ms: enqueued_at_ms + u64::from(version),
            from_since_ms: if version == 1 { 0 } else { enqueued_at_ms + u64::from(version) - 1 },
            since_ms: enqueued_at_ms + u64::from(version),
            sequence: 1,
            enqueued_at_ms,
            priority: 0,
            metadata: Metadata::default(),
            attempts: version / 2,
            fencing_token: u64::from(version / 2),
            worker: String::new(),
            due_ms: 0,
            reason: String::new(),
            last_reason: String::new(),
            coalesced: false,
            payload: None,
            result: Default::default(),
        }
    };
    let shard = Shard::first(&QueueName::parse("queue", "q").expect("a valid name"));
    let recorded = |version| {
        let offset = OFFSET.fetch_add(1, Ordering::SeqCst);
        Recorded { shard: shard.clone(), offset, event: event(version) }
    };
    (1..=versions).map(recorded).collect()
}

/// The events of several messages, one version after the other, as a shard writes them.
fn lives(names: std::ops::Range<usize>, versions: u32) -> Vec<Recorded> {
    let mut all: Vec<Recorded> = names.flat_map(|n| life(&format!("m{n:05}"), versions)).collect();
    all.sort_by_key(|recorded| recorded.event.version);
    all
}

/// An indexer in a task of the test.
struct RunningIndexer {
    stop: CancellationToken,
    task: JoinHandle<Result<(), IndexerError>>,
}

impl RunningIndexer {
    fn start(store: &Arc<RecordingStore>, kafka: &KafkaOptions) -> RunningIndexer {
        RunningIndexer::start_with(store, IndexerOptions { batch_events_max: 100, ..options(kafka) })
    }

    fn start_with(store: &Arc<RecordingStore>, options: IndexerOptions) -> RunningIndexer {
        let (stop, store) = (CancellationToken::new(), store.clone());
        let shutdown = stop.clone().cancelled_owned();
        RunningIndexer { stop, task: tokio::spawn(async move { run(store, options, shutdown).await }) }
    }

    /// Stops it and waits for its end.
    async fn stop(mut self) {
        self.stop.cancel();
        self.ended().await.expect("a clean end");
    }

    /// Waits until it ends by itself.
    async fn ended(&mut self) -> Result<(), IndexerError> {
        tokio::time::timeout(DEADLINE, &mut self.task).await.expect("it ends").expect("it does not panic")
    }

    /// Aborts it at any point of its work.
    async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// Options with a group for this topic alone.
fn options(kafka: &KafkaOptions) -> IndexerOptions {
    IndexerOptions { kafka: kafka.clone(), group: kafka.topic.clone(), ..IndexerOptions::default() }
}
