//! A consumer-group reader of one topic: how it is configured, paused, restarted and closed.
//!
//! The caller decides when a record is processed: it stores the next offset of each partition with
//! [`GroupReader::store_offsets`], and librdkafka commits stored offsets every second.

use crate::logging::{log_client_error, log_line};
use crate::options::{KafkaConfigError, KafkaOptions};
use futures::Stream;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::BorrowedMessage;
use rdkafka::statistics::Statistics;
use rdkafka::{Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How long [`GroupReader::close`] waits for Kafka.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Receives what a reader reports in addition to its records. Called on librdkafka's thread: it must not block.
pub trait ReaderObserver: Send + Sync + 'static {
    /// How many records behind the end of each assigned partition the stored offset is. Called every 5 seconds.
    fn lag(&self, records_by_partition: &BTreeMap<i32, i64>);
    /// The group took these partitions from this reader.
    fn revoked(&self, partitions: &[i32]);
}

/// A member of a consumer group that reads one topic. Closing it waits for Kafka, so a drop closes it on another
/// thread.
pub struct GroupReader<O: ReaderObserver> {
    topic: String,
    consumer: Option<Arc<StreamConsumer<ReaderContext<O>>>>,
}

impl<O: ReaderObserver> GroupReader<O> {
    /// Checks the options. Also returns the channel that reports partitions which librdkafka has stopped reading;
    /// the caller passes each to [`GroupReader::restart`].
    pub fn new(
        options: &KafkaOptions,
        group: &str,
        observer: O,
    ) -> Result<(GroupReader<O>, mpsc::UnboundedReceiver<StuckPartition>), KafkaConfigError> {
        let defaults = [
            ("queued.max.messages.kbytes", "16384"),
            // Fetch again soon after the prefetch buffer was full.
            ("fetch.queue.backoff.ms", "10"),
            ("partition.assignment.strategy", "cooperative-sticky"),
            ("auto.commit.interval.ms", "1000"),
        ];
        let fixed = [
            ("group.id", group),
            ("enable.auto.commit", "true"),
            ("enable.auto.offset.store", "false"),
            ("auto.offset.reset", "earliest"),
            // The source of the lag and of the stuck partitions.
            ("statistics.interval.ms", "5000"),
        ];
        let config = options.client_config(&defaults, &fixed)?;
        let (stuck, stuck_partitions) = mpsc::unbounded_channel();
        let topic = options.topic.clone();
        let context = ReaderContext { observer, topic: topic.clone(), waits: Mutex::default(), stuck };
        let consumer = config.create_with_context(context);
        let consumer = consumer.map_err(|error| KafkaConfigError::Refused(error.to_string()))?;
        Ok((GroupReader { topic, consumer: Some(Arc::new(consumer)) }, stuck_partitions))
    }

    fn consumer(&self) -> &StreamConsumer<ReaderContext<O>> {
        self.consumer.as_ref().expect("only `close` takes it, and consumes the reader")
    }

    /// Joins the group. The topic must exist: librdkafka would find a new one only after minutes.
    pub fn subscribe(&self) -> Result<(), KafkaError> {
        self.consumer().subscribe(&[&self.topic])
    }

    /// The records of all assigned partitions, in order within each.
    pub fn records(&self) -> impl Stream<Item = Result<BorrowedMessage<'_>, KafkaError>> + Unpin {
        self.consumer().stream()
    }

    /// Marks records as processed: of each partition, the offset after the last one. librdkafka commits the offsets
    /// every second, before it gives a partition away, and on close. Fails for partitions that another reader has
    /// taken over; that reader commits them.
    pub fn store_offsets(&self, next_offsets: &BTreeMap<i32, i64>) -> Result<(), KafkaError> {
        let mut offsets = TopicPartitionList::new();
        for (partition, next_offset) in next_offsets {
            offsets.add_partition_offset(&self.topic, *partition, Offset::Offset(*next_offset))?;
        }
        self.consumer().store_offsets(&offsets)
    }

    /// Stops reading the assigned partitions. Partitions assigned later are not paused. The caller goes on polling
    /// [`GroupReader::records`], because the group drops a member that does not poll.
    pub fn pause(&self) -> Result<(), KafkaError> {
        self.consumer().pause(&self.consumer().assignment()?)
    }

    /// Reads the assigned partitions again.
    pub fn resume(&self) -> Result<(), KafkaError> {
        self.consumer().resume(&self.consumer().assignment()?)
    }

    /// Restarts a stuck partition at the current position, without a validation by Kafka. After a second
    /// restart librdkafka has forgotten the position; then reading restarts at the committed offset, and some records
    /// are read again.
    pub fn restart(&self, stuck: &StuckPartition) {
        let position = self.consumer().position().ok();
        let position = position.and_then(|all| Some(all.find_partition(&self.topic, stuck.partition)?.offset()));
        let offset = match (position, stuck.committed) {
            (Some(Offset::Offset(next)), _) | (_, Some(next)) => Offset::Offset(next),
            _ => Offset::Beginning,
        };
        tracing::warn!(partition = stuck.partition, ?offset, "the Kafka client stopped reading; restarting it");
        if let Err(error) = self.consumer().seek(&self.topic, stuck.partition, offset, Duration::ZERO) {
            tracing::warn!(%error, partition = stuck.partition, "the Kafka client did not restart");
        }
    }

    /// Commits the stored offsets and leaves the group. Waits at most ten seconds for Kafka.
    pub async fn close(mut self) {
        let Some(consumer) = self.consumer.take() else { return };
        let (closed, is_closed) = oneshot::channel();
        // Not a blocking task of the runtime: the end of the program would wait for it, and so for Kafka.
        std::thread::spawn(move || {
            match consumer.commit_consumer_state(CommitMode::Sync) {
                Ok(()) | Err(KafkaError::ConsumerCommit(RDKafkaErrorCode::NoOffset)) => {}
                Err(error) => {
                    tracing::warn!(%error, "the last offsets are not committed: some records will be read again")
                }
            }
            drop(consumer);
            let _ = closed.send(());
        });
        if tokio::time::timeout(CLOSE_TIMEOUT, is_closed).await.is_err() {
            tracing::warn!("Kafka did not answer; the group removes this consumer when its session times out");
        }
    }
}

impl<O: ReaderObserver> Drop for GroupReader<O> {
    fn drop(&mut self) {
        if let Some(consumer) = self.consumer.take() {
            std::thread::spawn(move || drop(consumer));
        }
    }
}

/// A partition that librdkafka has stopped reading. It requested a validation of its position, lost the connection, and
/// waits for the response for ever (librdkafka #4492).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StuckPartition {
    partition: i32,
    /// Its committed offset, if it has one.
    committed: Option<i64>,
}

/// librdkafka's name for the state of such a partition.
const VALIDATING: &str = "validate-epoch-wait";
/// A partition counts as stuck after this many reports in that state: with fewer, Kafka may only be away.
const STUCK_REPORTS: u32 = 3;

/// How many reports in a row showed each partition as validating.
#[derive(Default)]
struct ValidationWaits(BTreeMap<i32, u32>);

impl ValidationWaits {
    /// Takes one report. Returns whether the partition must be restarted.
    fn report(&mut self, partition: i32, state: &str) -> bool {
        if state != VALIDATING {
            self.0.remove(&partition);
            return false;
        }
        let reports = self.0.entry(partition).or_default();
        *reports += 1;
        reports.is_multiple_of(STUCK_REPORTS)
    }
}

/// The callbacks of the consumer: log, statistics, rebalances.
struct ReaderContext<O> {
    observer: O,
    topic: String,
    waits: Mutex<ValidationWaits>,
    stuck: mpsc::UnboundedSender<StuckPartition>,
}

impl<O: ReaderObserver> ClientContext for ReaderContext<O> {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        log_client_error(&error, reason);
    }

    fn stats(&self, statistics: Statistics) {
        let Some(topic) = statistics.topics.get(&self.topic) else { return };
        let lags: BTreeMap<i32, i64> = topic
            .partitions
            .iter()
            .filter(|(number, partition)| **number >= 0 && partition.consumer_lag_stored >= 0)
            .map(|(number, partition)| (*number, partition.consumer_lag_stored))
            .collect();
        self.observer.lag(&lags);
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, partition) in &topic.partitions {
            if waits.report(*number, &partition.fetch_state) {
                let committed = u64::try_from(partition.committed_offset).is_ok().then_some(partition.committed_offset);
                // A closed channel means that the reader is being closed.
                let _ = self.stuck.send(StuckPartition { partition: *number, committed });
            }
        }
    }
}

impl<O: ReaderObserver> ConsumerContext for ReaderContext<O> {
    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(partitions) => tracing::info!(count = partitions.count(), "partitions assigned"),
            Rebalance::Revoke(partitions) => {
                tracing::info!(count = partitions.count(), "partitions revoked");
                let elements = partitions.elements();
                let numbers: Vec<i32> = elements.iter().map(|partition| partition.partition()).collect();
                self.observer.revoked(&numbers);
            }
            Rebalance::Error(error) => tracing::warn!(%error, "rebalance of the consumer group failed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q19_a_partition_restarts_after_three_validating_reports_in_a_row() {
        let mut waits = ValidationWaits::default();
        let mut report = |partition, state| waits.report(partition, state);
        assert_eq!([report(1, VALIDATING), report(1, VALIDATING), report(1, "active")], [false; 3]);
        assert_eq!([report(1, VALIDATING), report(2, VALIDATING), report(1, VALIDATING)], [false; 3]);
        assert!(report(1, VALIDATING));
        assert!(!report(2, VALIDATING));
        // After a restart it can become stuck again.
        assert_eq!([report(1, VALIDATING), report(1, VALIDATING), report(1, VALIDATING)], [false, false, true]);
    }
}
