//! The callbacks of a reader's consumer: log, statistics, rebalances.

use crate::logging::{log_client_error, log_line};
use crate::stuck::{StuckPartition, ValidationWaits};
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, ConsumerContext, Rebalance};
use rdkafka::TopicPartitionList;
use rdkafka::error::KafkaError;
use rdkafka::statistics::Statistics;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tokio::sync::mpsc;

/// Receives what a reader reports in addition to its records. Called on librdkafka's thread: it must not block.
pub trait ReaderObserver: Send + Sync + 'static {
    /// How many records behind the end of each assigned partition the stored offset is. Called every 5 seconds.
    fn lag(&self, records_by_partition: &BTreeMap<i32, i64>);
    /// The group has distributed its partitions, and gave these to this reader in addition to those that it has.
    fn assigned(&self, partitions: &[i32]);
    /// The group took these partitions from this reader.
    fn revoked(&self, partitions: &[i32]);
}

/// Receives the callbacks.
pub(crate) struct ReaderContext<O> {
    pub(crate) observer: O,
    pub(crate) topic: String,
    pub(crate) waits: Mutex<ValidationWaits>,
    pub(crate) stuck: mpsc::UnboundedSender<StuckPartition>,
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
            Rebalance::Assign(partitions) => {
                tracing::info!(count = partitions.count(), "partitions assigned");
                self.observer.assigned(&numbers(partitions));
            }
            Rebalance::Revoke(partitions) => {
                tracing::info!(count = partitions.count(), "partitions revoked");
                self.observer.revoked(&numbers(partitions));
            }
            Rebalance::Error(error) => tracing::warn!(%error, "rebalance of the consumer group failed"),
        }
    }
}

fn numbers(partitions: &TopicPartitionList) -> Vec<i32> {
    partitions.elements().iter().map(|partition| partition.partition()).collect()
}
