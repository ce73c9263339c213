//! An ingest process: memberships one after the other, until it is stopped.

use crate::member::Member;
use crate::metrics;
use crate::outputs::Targets;
use crate::sender::Sender;
use crate::steps::Steps;
use crate::work::{MembershipError, Work};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tallystone_client::{CounterClient, NamespaceConfig};
use tallystone_kafka::{ExactOptions, KafkaConfigError, KafkaOptions, Topic, TopicSpec, repeat_membership};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// The first and the longest pause before a request for a topic is repeated.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// For how long late records are kept: as long as Kafka keeps the offsets of a group that is stopped.
const LATE_RETENTION_MS: u64 = 7 * 86_400_000;

/// What to ingest, and how.
#[derive(Clone, Debug)]
pub struct IngestOptions {
    /// The cluster.
    pub kafka: KafkaOptions,
    /// The topic of adds, that of late records, and that of dead letters.
    pub topics: [String; 3],
    /// The consumer group.
    pub group: String,
    /// The name of this process in the group; `None`: each start is a new member.
    pub instance: Option<String>,
    /// The namespace of records that name none.
    pub namespace: Option<String>,
    /// With what a missing namespace is created; `None`: adds to it are dead letters.
    pub creation: Option<NamespaceConfig>,
    /// The most records in a batch.
    pub batch_records_max: usize,
    /// Receives about every 5 s how many records of its partitions are not decided yet.
    pub undecided: Arc<AtomicU64>,
    /// Called at the steps that matter after a crash; by default nothing is.
    pub steps: Steps,
}

/// Why an ingest process cannot work.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// An option cannot be used.
    #[error(transparent)]
    Config(#[from] KafkaConfigError),
}

/// Counts the adds of the topic until the token is cancelled. Waits through outages of Kafka and of the counters. `counters`
/// repeats no call by itself. `is_serving` is true while adds are counted. Blocks its thread, so it needs a dedicated one.
///
/// # Errors
/// An option cannot be used.
pub async fn run(
    options: IngestOptions,
    counters: CounterClient,
    is_serving: watch::Sender<bool>,
    stopping: CancellationToken,
) -> Result<(), IngestError> {
    metrics::describe();
    let Some(late_partitions) = stopping.run_until_cancelled(topics(&options)).await.transpose()? else {
        return Ok(());
    };
    let IngestOptions { kafka, topics: [source, late, dead], group, instance, namespace, .. } = options;
    let name = instance.clone().unwrap_or_else(|| Uuid::new_v4().simple().to_string());
    let work = Work {
        transactional_id: format!("{group}.{name}"),
        reader: ExactOptions { kafka, topics: vec![source, late.clone()], group, instance },
        targets: Targets { late, late_partitions, dead },
        sender: Arc::new(Sender::new(counters, options.creation)),
        namespace,
        batch_records_max: options.batch_records_max,
        is_serving,
        undecided: options.undecided,
        steps: options.steps,
    };
    let failed = |failure| {
        if let MembershipError::Config(error) = failure {
            return Err(error.into());
        }
        work.is_serving.send_replace(false);
        metrics::joined_again();
        tracing::warn!(why = %failure, "joining the consumer group again");
        Ok(())
    };
    repeat_membership(&stopping, || Member::join(&work), failed).await
}

/// Waits until the topic of adds exists, and creates the others if they are missing. Returns the number of partitions of the
/// topic of late records.
async fn topics(options: &IngestOptions) -> Result<i32, KafkaConfigError> {
    let [source, late, dead] = &options.topics;
    let spec = |name: &String, partitions, retention_ms| TopicSpec {
        name: name.clone(),
        partitions,
        retention_ms,
        message_bytes_max: Some(2 * 1024 * 1024),
        has_append_time: false,
        is_compacted: false,
    };
    let source = Topic::new(&options.kafka, spec(source, 1, None))?;
    let partitions = until(source.name(), || source.partitions()).await;
    let late = Topic::new(&options.kafka, spec(late, partitions, Some(LATE_RETENTION_MS)))?;
    let dead = Topic::new(&options.kafka, spec(dead, 1, None))?;
    for topic in [&late, &dead] {
        until(topic.name(), || topic.ensure()).await;
    }
    let late_partitions = until(late.name(), || late.partitions()).await;
    Ok(i32::try_from(late_partitions).unwrap_or(i32::MAX))
}

/// Repeats a request until Kafka has answered it.
async fn until<T, F: Future<Output = Result<T, rdkafka::error::KafkaError>>>(
    topic: &str,
    request: impl Fn() -> F,
) -> T {
    let mut pause = PAUSE_MIN;
    loop {
        match request().await {
            Ok(done) => return done,
            Err(error) => tracing::warn!(topic, %error, "the topic is not there yet; waiting"),
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(PAUSE_MAX);
    }
}
