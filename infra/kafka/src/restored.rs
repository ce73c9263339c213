//! A topic that is read back by the one who has written it: the committed records of one partition, from the first one on, and
//! the deletion of those that are of no more use.

use crate::error::KafkaConfigError;
use crate::logging::LogContext;
use crate::options::KafkaOptions;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::BorrowedMessage;
use rdkafka::{Message, Offset, TopicPartitionList};
use std::ops::ControlFlow;
use std::time::Duration;

/// How long one poll waits.
const POLL: Duration = Duration::from_millis(100);
/// How long a deletion waits for Kafka.
const DELETE_TIMEOUT: Duration = Duration::from_secs(5);

/// Clients for such a topic. They join no group.
pub struct RestoredTopic {
    topic: String,
    consumer: BaseConsumer<LogContext>,
    admin: AdminClient<LogContext>,
}

/// What a read comes to.
pub enum Restored<'a> {
    /// The next committed record.
    Record(&'a BorrowedMessage<'a>),
    /// No more records are committed now.
    End,
    /// Nothing has come for a moment.
    Nothing,
}

impl RestoredTopic {
    /// Checks the options. `group` only names the right to read: the group is not joined.
    ///
    /// # Errors
    /// An option cannot be used.
    pub fn new(options: &KafkaOptions, topic: &str, group: &str) -> Result<RestoredTopic, KafkaConfigError> {
        let fixed = [
            ("group.id", group),
            ("enable.auto.commit", "false"),
            ("enable.partition.eof", "true"),
            ("auto.offset.reset", "earliest"),
            ("isolation.level", "read_committed"),
        ];
        Ok(RestoredTopic {
            topic: topic.to_owned(),
            consumer: options.client_config(&[], &fixed)?.create_with_context(LogContext)?,
            admin: options.client_config(&[], &[])?.create_with_context(LogContext)?,
        })
    }

    /// Reads a partition from its first record on, until `next` breaks. Blocks; `next` is called several times a second at least.
    ///
    /// # Errors
    /// The client has failed.
    pub fn read<B>(
        &self,
        partition: i32,
        mut next: impl FnMut(Restored<'_>) -> ControlFlow<B>,
    ) -> Result<B, KafkaError> {
        let mut begin = TopicPartitionList::new();
        begin.add_partition_offset(&self.topic, partition, Offset::Beginning)?;
        self.consumer.assign(&begin)?;
        let broken = loop {
            let flow = match self.consumer.poll(POLL) {
                Some(Ok(record)) if record.partition() == partition => next(Restored::Record(&record)),
                Some(Err(KafkaError::PartitionEOF(of))) if of == partition => next(Restored::End),
                // Left over from the read of another partition.
                Some(Ok(_) | Err(KafkaError::PartitionEOF(_))) => next(Restored::Nothing),
                Some(Err(error)) => {
                    tracing::debug!(topic = self.topic, partition, %error, "nothing read");
                    next(Restored::Nothing)
                }
                None => next(Restored::Nothing),
            };
            if let ControlFlow::Break(broken) = flow {
                break broken;
            }
        };
        // A consumer without an assignment fetches nothing.
        self.consumer.unassign()?;
        Ok(broken)
    }

    /// Begins to delete the records of a partition before this offset. A deletion that fails is of no consequence: a later one
    /// covers its records.
    pub fn delete_before(&self, partition: i32, offset: i64) {
        let mut before = TopicPartitionList::new();
        if before.add_partition_offset(&self.topic, partition, Offset::Offset(offset)).is_ok() {
            // It is sent now; only its answer would have to be awaited.
            drop(self.admin.delete_records(&before, &AdminOptions::new().request_timeout(Some(DELETE_TIMEOUT))));
        }
    }
}
