//! Opens the log: creates its topics if they are missing, and reads what was drawn when it was created.

use super::appends::{KafkaPartition, send};
use super::topics::ViewTopics;
use crate::dedupe::{PairHasher, SECRET_BYTES};
use crate::owner::PairsMemory;
use crate::steps::{StepObserver, unobserved};
use rdkafka::Message;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tallystone_kafka::{KafkaConfigError, KafkaOptions, Producer, Restored, RestoredTopic, Topic, TopicSpec};
use tallystone_link::StoreStatus;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

/// Views that are not acknowledged after so many ms have failed, unless a property of the configuration says otherwise.
const DELIVERY_MS_MAX: &str = "5000";
/// The service gathers views itself: records need to wait only for those that are handed over at the same time.
const LINGER_MS: &str = "1";
/// A record of the state or a batch of deltas has at most so many bytes.
const MESSAGE_BYTES_MAX: u32 = 2 * 1024 * 1024;
/// For how long deltas that wait for the counters are kept: as long as Kafka keeps the offsets of a group that is stopped.
const DELTAS_RETENTION_MS: u64 = 7 * 86_400_000;
/// How long Kafka may take to create the topics, and to answer for them.
const OPEN_TIMEOUT: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(100);
/// How often it is probed whether the topic of views is there.
const PROBE_EVERY: Duration = Duration::from_secs(2);

/// The log.
pub struct KafkaLog {
    pub(super) options: KafkaOptions,
    pub(super) topics: ViewTopics,
    pub(super) hasher: PairHasher,
    steps: StepObserver,
    producer: Arc<Producer>,
    partitions: u16,
    status: watch::Receiver<StoreStatus>,
    _tasks: JoinSet<()>,
}

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum KafkaLogError {
    /// An option cannot be used.
    #[error(transparent)]
    Config(#[from] KafkaConfigError),
    /// Kafka does not answer.
    #[error("Kafka: {0}")]
    Kafka(#[from] KafkaError),
    /// A topic has another number of partitions than the configuration. Videos would move to partitions without their pairs.
    #[error("the topic {topic} has {found} partitions; set views.partitions = {found}")]
    Partitions {
        /// The topic.
        topic: String,
        /// Its number.
        found: u32,
    },
    /// The first record of the topic of the layout is not one.
    #[error("the first record of {0} is not what this program writes there")]
    Layout(String),
}

impl KafkaLog {
    /// Connects, creates missing topics with this number of partitions, and reads the secret of the log. Kafka keeps views
    /// for the retention of the options.
    ///
    /// # Errors
    /// Kafka does not answer, or has another log under this name.
    pub async fn connect(options: &KafkaOptions, topic: &str, partitions: u16) -> Result<KafkaLog, KafkaLogError> {
        let topics = ViewTopics::of(topic);
        let mut with_defaults = options.clone();
        for (name, value) in [("message.timeout.ms", DELIVERY_MS_MAX), ("linger.ms", LINGER_MS)] {
            with_defaults.properties.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        }
        let producer = Arc::new(Producer::new(&with_defaults)?);
        let count = u32::from(partitions);
        let views = open(options, views_spec(&topics.views, count, options.retention_ms)).await?;
        open(options, spec(&topics.state, count, None)).await?;
        open(options, spec(&topics.deltas, count, Some(DELTAS_RETENTION_MS))).await?;
        open(options, spec(&topics.layout, 1, None)).await?;
        let secret = secret(options, &topics, &producer).await?;
        let (sender, status) = watch::channel(StoreStatus::Serving);
        let mut tasks = JoinSet::new();
        tasks.spawn(probe(views, sender));
        Ok(KafkaLog {
            options: options.clone(),
            topics,
            hasher: PairHasher::new(&secret),
            steps: unobserved(),
            producer,
            partitions,
            status,
            _tasks: tasks,
        })
    }

    /// The same log, whose members and callers report their steps.
    pub fn observed_by(mut self, steps: StepObserver) -> KafkaLog {
        self.steps = steps;
        self
    }

    /// What observes the steps.
    pub(crate) fn steps(&self) -> &StepObserver {
        &self.steps
    }

    /// Whether the topic of views can be reached, and every change of that.
    pub(crate) fn status(&self) -> watch::Receiver<StoreStatus> {
        self.status.clone()
    }

    /// The partitions, in the order of their numbers.
    pub(crate) fn partitions(&self, memory: &Arc<PairsMemory>) -> Vec<Arc<KafkaPartition>> {
        let partition = |number: u16| {
            let (producer, topic, memory) = (self.producer.clone(), self.topics.views.clone(), memory.clone());
            Arc::new(KafkaPartition { producer, topic, number: i32::from(number), memory })
        };
        (0..self.partitions).map(partition).collect()
    }
}

fn spec(name: &str, partitions: u32, retention_ms: Option<u64>) -> TopicSpec {
    let message_bytes_max = Some(MESSAGE_BYTES_MAX);
    let (name, has_append_time, is_compacted) = (name.to_owned(), false, false);
    TopicSpec { name, partitions, retention_ms, message_bytes_max, has_append_time, is_compacted }
}

/// The brokers set the time of views: one clock for each partition, and none of a caller.
fn views_spec(name: &str, partitions: u32, retention_ms: u64) -> TopicSpec {
    TopicSpec { has_append_time: true, ..spec(name, partitions, Some(retention_ms)) }
}

/// Creates a topic if it is missing, and checks its partitions.
async fn open(options: &KafkaOptions, spec: TopicSpec) -> Result<Topic, KafkaLogError> {
    let partitions = spec.partitions;
    let topic = Topic::new(options, spec)?;
    let give_up_at = Instant::now() + OPEN_TIMEOUT;
    let found = loop {
        let found = match topic.ensure().await {
            Ok(()) => topic.partitions().await,
            Err(error) => Err(error),
        };
        match found {
            // A new topic is not known everywhere at once.
            Err(error) if Instant::now() < give_up_at => tracing::debug!(topic = topic.name(), %error, "not there yet"),
            found => break found?,
        }
        sleep(PAUSE).await;
    };
    if found == partitions {
        return Ok(topic);
    }
    Err(KafkaLogError::Partitions { topic: topic.name().to_owned(), found })
}

/// The secret of the log: what the first record of the layout has. Processes that create the log at the same time all write
/// one, and the log has one order.
async fn secret(
    options: &KafkaOptions,
    topics: &ViewTopics,
    producer: &Producer,
) -> Result<[u8; SECRET_BYTES], KafkaLogError> {
    let text = match first_record(options, topics).await? {
        Some(text) => text,
        None => {
            let drawn = [Uuid::new_v4(), Uuid::new_v4()].map(|half| half.simple().to_string()).concat();
            send(producer, &topics.layout, 0, &[(None, format!("1 {drawn}").as_bytes())]).await?;
            first_record(options, topics).await?.ok_or(KafkaError::NoMessageReceived)?
        }
    };
    let drawn = text.strip_prefix("1 ").filter(|drawn| drawn.len() == 2 * SECRET_BYTES);
    let drawn = drawn.ok_or_else(|| KafkaLogError::Layout(topics.layout.clone()))?;
    let mut secret = [0; SECRET_BYTES];
    // The text has 244 random bits in 64 bytes.
    secret.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, drawn.as_bytes()).as_ref());
    Ok(secret)
}

async fn first_record(options: &KafkaOptions, topics: &ViewTopics) -> Result<Option<String>, KafkaLogError> {
    let layout = RestoredTopic::new(options, &topics.layout, &topics.views)?;
    let give_up_at = Instant::now() + OPEN_TIMEOUT;
    let read = move || {
        layout.read(0, |next| match next {
            Restored::Record(record) => {
                let text = String::from_utf8_lossy(record.payload().unwrap_or_default());
                ControlFlow::Break(Ok(Some(text.into_owned())))
            }
            Restored::End => ControlFlow::Break(Ok(None)),
            Restored::Nothing if Instant::now() >= give_up_at => {
                ControlFlow::Break(Err(KafkaError::MessageConsumption(RDKafkaErrorCode::OperationTimedOut)))
            }
            Restored::Nothing => ControlFlow::Continue(()),
        })
    };
    Ok(spawn_blocking(read).await.unwrap_or(Err(KafkaError::Canceled))??)
}

/// Notices whether the topic of views can be reached.
async fn probe(views: Topic, status: watch::Sender<StoreStatus>) {
    loop {
        sleep(PROBE_EVERY).await;
        views.forget_partitions().await;
        let found = views.partitions().await;
        let now = if found.is_ok() { StoreStatus::Serving } else { StoreStatus::Unavailable };
        status.send_if_modified(|before| {
            *before != now && {
                *before = now;
                true
            }
        });
    }
}
