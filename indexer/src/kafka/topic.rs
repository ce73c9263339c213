//! The topics: made where they are missing, and how many partitions they have.

use super::client::Quiet;
use super::options::{KafkaConfigError, KafkaOptions};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How long Kafka may take for an answer about a topic.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// How long the number of partitions is believed.
const BELIEVED: Duration = Duration::from_secs(10);

/// One topic.
pub(super) struct Topic {
    name: String,
    partitions: u32,
    replication: i32,
    settings: Vec<(&'static str, String)>,
    admin: Arc<AdminClient<Quiet>>,
    known: Mutex<Option<(u32, Instant)>>,
}

impl Topic {
    /// The topic of the events.
    pub(super) fn events(options: &KafkaOptions) -> Result<Topic, KafkaConfigError> {
        let settings = vec![("retention.ms", options.retention_ms.to_string())];
        Topic::new(options, options.topic.clone(), options.partitions, settings)
    }

    /// The topic of what can never be indexed: kept until somebody removes it, and wide enough for the largest record
    /// with what is added.
    pub(super) fn dead_letters(options: &KafkaOptions) -> Result<Topic, KafkaConfigError> {
        let settings = vec![("retention.ms", "-1".to_owned()), ("max.message.bytes", "2097152".to_owned())];
        Topic::new(options, options.dead_letter_topic(), 1, settings)
    }

    fn new(
        options: &KafkaOptions,
        name: String,
        partitions: u32,
        mut settings: Vec<(&'static str, String)>,
    ) -> Result<Topic, KafkaConfigError> {
        // Records carry the store's time. One that is ahead of Kafka's must not stop all that comes after it.
        settings.push(("message.timestamp.after.max.ms", i64::MAX.to_string()));
        settings.push(("message.timestamp.type", "CreateTime".to_owned()));
        let admin = options.client(&[], &[])?.create_with_context(Quiet);
        Ok(Topic {
            name,
            partitions,
            replication: options.replication_factor.map_or(-1, i32::from),
            settings,
            admin: Arc::new(admin.map_err(|error| KafkaConfigError::Refused(error.to_string()))?),
            known: Mutex::new(None),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Makes it if it is not there.
    pub(super) async fn ensure(&self) -> Result<(), KafkaError> {
        use RDKafkaErrorCode::{
            ClusterAuthorizationFailed, InvalidConfig, TopicAlreadyExists, TopicAuthorizationFailed,
        };
        let mut made = self.make(&self.settings).await?;
        if made == Err(InvalidConfig) {
            // An older Kafka, or one that only speaks like it.
            made = self.make(&self.settings[..1]).await?;
        }
        match made {
            Ok(()) => tracing::info!(topic = self.name, partitions = self.partitions, "made the topic"),
            Err(TopicAlreadyExists) => {}
            // Somebody who may has made it, or what comes next says that it is not there.
            Err(code @ (TopicAuthorizationFailed | ClusterAuthorizationFailed)) => {
                tracing::debug!(topic = self.name, %code, "may not make topics");
            }
            Err(code) => return Err(KafkaError::AdminOp(code)),
        }
        Ok(())
    }

    async fn make(&self, settings: &[(&str, String)]) -> Result<Result<(), RDKafkaErrorCode>, KafkaError> {
        let mut topic = NewTopic::new(&self.name, self.partitions as i32, TopicReplication::Fixed(self.replication));
        for (name, value) in settings {
            topic = topic.set(name, value);
        }
        let wait = AdminOptions::new().request_timeout(Some(ANSWER_WAIT)).operation_timeout(Some(ANSWER_WAIT));
        let made = self.admin.create_topics([&topic], &wait).await?.into_iter().next();
        Ok(made.map_or(Ok(()), |made| made.map(|_| ()).map_err(|(_, code)| code)))
    }

    /// How many partitions it has now, or had a few seconds ago.
    pub(super) async fn partitions(&self) -> Result<u32, KafkaError> {
        let mut known = self.known.lock().await;
        if let Some((count, asked_at)) = *known
            && asked_at.elapsed() < BELIEVED
        {
            return Ok(count);
        }
        let (admin, name) = (self.admin.clone(), self.name.clone());
        let asking = tokio::task::spawn_blocking(move || {
            let metadata = admin.inner().fetch_metadata(Some(&name), ANSWER_WAIT)?;
            Ok(metadata.topics().first().map_or(0, |topic| topic.partitions().len() as u32))
        });
        match asking.await.unwrap_or(Err(KafkaError::Canceled))? {
            0 => Err(KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopicOrPartition)),
            count => {
                *known = Some((count, Instant::now()));
                Ok(count)
            }
        }
    }

    /// Asks anew next time.
    pub(super) async fn forget(&self) {
        *self.known.lock().await = None;
    }
}
