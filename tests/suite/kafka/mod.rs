//! Kafka at both ends, against a real one (Q19). What lives here: what the topic holds, what the indexer hands to a
//! store, and what becomes of both when one of the parts dies. What may not: what a store makes of it.

mod crash;
mod dead;
mod group;
mod indexing;
mod keeper;
mod topic;

use keeper::Keeper;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tallystone_indexer::kafka::{IndexerError, IndexerOptions, run};
use tallystone_kafka::KafkaOptions;
use tallystone_model::*;
use tallystone_tests::{TestKafka, id};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// For what must happen, on a machine that does much else.
const DEADLINE: Duration = Duration::from_secs(60);

/// A topic of the test's own, with four partitions.
fn topic_of(kafka: &TestKafka, test: &str) -> KafkaOptions {
    let brokers = kafka.address();
    // Fewer milliseconds than tests that run at the same time would do, with the process beside it.
    let topic = format!("{test}-{}-{}", std::process::id(), now_ms());
    KafkaOptions { brokers, topic, partitions: 4, ..KafkaOptions::default() }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64
}

/// The first `versions` events of a message: enqueued, then leased and given back again and again.
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
        }
    };
    let shard = Shard::first(&QueueName::parse("queue", "q").expect("a valid name"));
    let recorded = |version| {
        let offset = OFFSET.fetch_add(1, Ordering::SeqCst);
        Recorded { shard: shard.clone(), offset, event: event(version) }
    };
    (1..=versions).map(recorded).collect()
}

/// The lives of several messages, one version after the other, as a shard would have them.
fn lives(names: std::ops::Range<usize>, versions: u32) -> Vec<Recorded> {
    let mut all: Vec<Recorded> = names.flat_map(|n| life(&format!("m{n:05}"), versions)).collect();
    all.sort_by_key(|recorded| recorded.event.version);
    all
}

/// An indexer that runs beside the test.
struct Running {
    stop: CancellationToken,
    task: JoinHandle<Result<(), IndexerError>>,
}

impl Running {
    fn start(keeper: &Arc<Keeper>, kafka: &KafkaOptions) -> Running {
        Running::start_with(keeper, IndexerOptions { batch_events_max: 100, ..options(kafka) })
    }

    fn start_with(keeper: &Arc<Keeper>, options: IndexerOptions) -> Running {
        let (stop, keeper) = (CancellationToken::new(), keeper.clone());
        let shutdown = stop.clone().cancelled_owned();
        Running { stop, task: tokio::spawn(async move { run(keeper, options, shutdown).await }) }
    }

    /// Asks it to end, and waits for it.
    async fn stop(self) {
        self.stop.cancel();
        self.ended().await.expect("a clean end");
    }

    async fn ended(self) -> Result<(), IndexerError> {
        tokio::time::timeout(DEADLINE, self.task).await.expect("it ends").expect("it does not panic")
    }

    /// Ends it in the middle of whatever it does.
    async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// A group of the topic's own.
fn options(kafka: &KafkaOptions) -> IndexerOptions {
    IndexerOptions { kafka: kafka.clone(), group: kafka.topic.clone(), ..IndexerOptions::default() }
}
