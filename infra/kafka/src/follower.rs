//! Reads topics from given positions, in no consumer group: the caller keeps the positions.

use crate::error::KafkaConfigError;
use crate::logging::LogContext;
use crate::options::KafkaOptions;
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::error::KafkaError;
use rdkafka::message::BorrowedMessage;
use rdkafka::{Offset, TopicPartitionList};
use std::sync::Arc;
use std::time::Duration;

/// How long a request of the partitions waits for Kafka.
const METADATA_TIMEOUT: Duration = Duration::from_secs(5);

/// A reader of all partitions of some topics.
pub struct TopicFollower {
    topics: Vec<String>,
    consumer: Option<Arc<StreamConsumer<LogContext>>>,
}

impl TopicFollower {
    /// Checks the options; connects to Kafka in the background. `group` only names the right to read: the group is not joined.
    ///
    /// # Errors
    /// An option cannot be used.
    pub fn new(options: &KafkaOptions, topics: &[String], group: &str) -> Result<TopicFollower, KafkaConfigError> {
        let fixed = [
            ("group.id", group),
            ("enable.auto.commit", "false"),
            // Also for a position that the topic does not have: it was created again.
            ("auto.offset.reset", "earliest"),
            ("isolation.level", "read_committed"),
        ];
        let defaults = [("queued.max.messages.kbytes", "16384"), ("fetch.queue.backoff.ms", "10")];
        let consumer = options.client_config(&defaults, &fixed)?.create_with_context(LogContext)?;
        Ok(TopicFollower { topics: topics.to_vec(), consumer: Some(Arc::new(consumer)) })
    }

    fn consumer(&self) -> &Arc<StreamConsumer<LogContext>> {
        self.consumer.as_ref().expect("only the drop takes it")
    }

    /// The partitions of the topics that exist now, each with its topic.
    ///
    /// # Errors
    /// Kafka does not answer.
    pub async fn partitions(&self) -> Result<Vec<(String, i32)>, KafkaError> {
        let (consumer, topics) = (self.consumer().clone(), self.topics.clone());
        let found = tokio::task::spawn_blocking(move || {
            let mut found = Vec::new();
            for topic in topics {
                let metadata = consumer.fetch_metadata(Some(&topic), METADATA_TIMEOUT)?;
                // A topic that does not exist has none.
                let partitions = metadata.topics().iter().flat_map(|of| of.partitions());
                found.extend(partitions.map(|partition| (topic.clone(), partition.id())));
            }
            Ok(found)
        });
        found.await.unwrap_or(Err(KafkaError::Canceled))
    }

    /// Begins to read these partitions, each from this offset; `None`: from its first record.
    ///
    /// # Errors
    /// The client has failed.
    pub fn read_from(&self, positions: &[(String, i32, Option<i64>)]) -> Result<(), KafkaError> {
        let mut assigned = TopicPartitionList::new();
        for (topic, partition, next_offset) in positions {
            let offset = next_offset.map_or(Offset::Beginning, Offset::Offset);
            assigned.add_partition_offset(topic, *partition, offset)?;
        }
        self.consumer().assign(&assigned)
    }

    /// The next record of any of them, in the order of its partition.
    ///
    /// # Errors
    /// The client has failed, or has lost the brokers; it may find them again.
    pub async fn next(&self) -> Result<BorrowedMessage<'_>, KafkaError> {
        self.consumer().recv().await
    }
}

impl Drop for TopicFollower {
    fn drop(&mut self) {
        if let Some(consumer) = self.consumer.take() {
            // The last drop of a client waits for its threads.
            std::thread::spawn(move || drop(consumer));
        }
    }
}
