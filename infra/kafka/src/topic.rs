//! A topic: created if it is missing, and its current number of partitions.

use crate::error::KafkaConfigError;
use crate::logging::LogContext;
use crate::options::KafkaOptions;
use crate::renewed::Renewed;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How long an admin request waits for Kafka.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the number of partitions is cached.
const PARTITIONS_CACHED: Duration = Duration::from_secs(10);

/// How a topic is created if it is missing. A topic that exists keeps its own settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSpec {
    /// Its name.
    pub name: String,
    /// Its number of partitions.
    pub partitions: u32,
    /// Its retention in ms by record timestamp; `None`: records are kept until an operator deletes them.
    pub retention_ms: Option<u64>,
    /// The largest record batch in bytes; `None`: the cluster's default.
    pub message_bytes_max: Option<u32>,
    /// Whether the brokers set the time of each record when they append it. Else its producer does.
    pub has_append_time: bool,
    /// Whether Kafka keeps only the latest record of each key. Then nothing else is deleted.
    pub is_compacted: bool,
}

/// Whether this error of a write says that its topic, or the partition, does not exist (any more).
pub fn is_topic_missing(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{UnknownPartition, UnknownTopic, UnknownTopicOrPartition};
    matches!(error.rdkafka_error_code(), Some(UnknownPartition | UnknownTopic | UnknownTopicOrPartition))
}

/// A topic of one cluster, with an admin client.
pub struct Topic {
    spec: TopicSpec,
    replication: i32,
    admin: Renewed<AdminClient<LogContext>>,
    /// The number of partitions, and when Kafka reported it.
    cached_partitions: Mutex<Option<(u32, Instant)>>,
}

impl Topic {
    /// The events topic that the options name.
    pub fn events(options: &KafkaOptions) -> Result<Topic, KafkaConfigError> {
        let spec = TopicSpec {
            name: options.topic.clone(),
            partitions: options.partitions,
            retention_ms: Some(options.retention_ms),
            message_bytes_max: None,
            has_append_time: false,
            is_compacted: false,
        };
        Topic::new(options, spec)
    }

    /// Another topic of the same cluster. Checks the options; connects to Kafka at the first request.
    pub fn new(options: &KafkaOptions, spec: TopicSpec) -> Result<Topic, KafkaConfigError> {
        Ok(Topic {
            spec,
            replication: options.replication_factor.map_or(-1, i32::from),
            admin: Renewed::new(options.client_config(&[], &[])?, || LogContext)?,
            cached_partitions: Mutex::new(None),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Creates the topic if it is missing. A client that may not create topics gets `Ok`: an operator has created
    /// it, or the next request fails because it is missing.
    pub async fn ensure(&self) -> Result<(), KafkaError> {
        use RDKafkaErrorCode::{
            ClusterAuthorizationFailed, InvalidConfig, TopicAlreadyExists, TopicAuthorizationFailed,
        };
        let mut retention = vec![("retention.ms", self.spec.retention_ms.map_or("-1".to_owned(), |ms| ms.to_string()))];
        if self.spec.retention_ms.is_none() {
            // No default of the brokers may delete what is to be kept.
            retention.push(("retention.bytes", "-1".to_owned()));
            let policy = if self.spec.is_compacted { "compact" } else { "delete" };
            retention.push(("cleanup.policy", policy.to_owned()));
        }
        let mut settings = retention.clone();
        // Records carry the time of Redis. One whose time is ahead of Kafka's clock must not block those behind it.
        settings.push(("message.timestamp.after.max.ms", i64::MAX.to_string()));
        let time = if self.spec.has_append_time { "LogAppendTime" } else { "CreateTime" };
        settings.push(("message.timestamp.type", time.to_owned()));
        settings.extend(self.spec.message_bytes_max.map(|bytes| ("max.message.bytes", bytes.to_string())));
        let mut created = self.create(&settings).await?;
        if created == Err(InvalidConfig) {
            // Kafka before 3.6 does not know this one.
            settings.retain(|(name, _)| *name != "message.timestamp.after.max.ms");
            created = self.create(&settings).await?;
        }
        if created == Err(InvalidConfig) && !self.spec.has_append_time {
            // Another server with its protocol does not know all of the others. Where the brokers' time is needed, none may be missing.
            created = self.create(&retention).await?;
        }
        match created {
            Ok(()) => tracing::info!(topic = self.name(), partitions = self.spec.partitions, "created the topic"),
            Err(TopicAlreadyExists) => {}
            Err(code @ (TopicAuthorizationFailed | ClusterAuthorizationFailed)) => {
                tracing::debug!(topic = self.name(), %code, "not allowed to create topics");
            }
            Err(code) => return Err(KafkaError::AdminOp(code)),
        }
        Ok(())
    }

    async fn create(&self, settings: &[(&str, String)]) -> Result<Result<(), RDKafkaErrorCode>, KafkaError> {
        let replication = TopicReplication::Fixed(self.replication);
        let mut topic = NewTopic::new(&self.spec.name, self.spec.partitions as i32, replication);
        for (name, value) in settings {
            topic = topic.set(name, value);
        }
        let timeouts =
            AdminOptions::new().request_timeout(Some(REQUEST_TIMEOUT)).operation_timeout(Some(REQUEST_TIMEOUT));
        let admin = self.admin.current();
        let created = admin.create_topics([&topic], &timeouts).await;
        let created = created.inspect_err(|_| self.admin.renew(&admin))?.into_iter().next();
        Ok(created.map_or(Ok(()), |created| created.map(|_| ()).map_err(|(_, code)| code)))
    }

    /// The number of partitions: from Kafka, or cached for at most ten seconds.
    pub async fn partitions(&self) -> Result<u32, KafkaError> {
        let mut cached = self.cached_partitions.lock().await;
        if let Some((count, read_at)) = *cached
            && read_at.elapsed() < PARTITIONS_CACHED
        {
            return Ok(count);
        }
        let (admin, name) = (self.admin.current(), self.spec.name.clone());
        let counting = tokio::task::spawn_blocking({
            let admin = admin.clone();
            move || {
                let metadata = admin.inner().fetch_metadata(Some(&name), REQUEST_TIMEOUT)?;
                Ok(metadata.topics().first().map_or(0, |topic| topic.partitions().len() as u32))
            }
        });
        let count = counting.await.unwrap_or(Err(KafkaError::Canceled));
        match count.inspect_err(|_| self.admin.renew(&admin))? {
            0 => Err(KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopicOrPartition)),
            count => {
                *cached = Some((count, Instant::now()));
                Ok(count)
            }
        }
    }

    /// Drops the cached number of partitions, so that the next call reads it from Kafka.
    pub async fn forget_partitions(&self) {
        *self.cached_partitions.lock().await = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_broker::FakeBroker;

    /// librdkafka #5301: it drops all brokers when a cluster has none for a moment, and never connects again.
    #[tokio::test]
    async fn q19_a_broker_that_was_not_registered_for_a_moment_is_found_again() {
        let broker = FakeBroker::start();
        let topic = Topic::events(&broker.options()).unwrap();
        for _ in 0..5 {
            assert_eq!(topic.partitions().await, Ok(1));
            topic.forget_partitions().await;
            broker.set_registered(false);
            let _ = topic.partitions().await;
            topic.forget_partitions().await;
            broker.set_registered(true);
            let give_up_at = Instant::now() + Duration::from_secs(30);
            while let Err(error) = topic.partitions().await {
                assert!(Instant::now() < give_up_at, "{error}");
            }
            assert!(broker.described() > 0);
            topic.forget_partitions().await;
        }
    }
}
