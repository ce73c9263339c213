//! The callbacks of a reader's consumer: log, statistics, rebalances.

use crate::coverage::Coverage;
use crate::logging::{log_client_error, log_line};
use crate::position::Position;
use crate::stuck::{Silences, StuckPartition, Trouble, ValidationWaits, described, has_no_brokers};
use crate::verifier::{Verdict, Verifier};
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance, RebalanceProtocol};
use rdkafka::error::KafkaError;
use rdkafka::statistics::Statistics;
use rdkafka::topic_partition_list::TopicPartitionListElem;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// How long an assignment waits for the committed offsets.
const COMMITTED_TIMEOUT: Duration = Duration::from_secs(5);

/// Receives what a reader reports in addition to its records. Called on librdkafka's thread: it must not block.
pub trait ReaderObserver: Send + Sync + 'static {
    /// How many records behind the end of each assigned partition the stored offset is. Called every 5 seconds.
    fn lag(&self, records_by_partition: &BTreeMap<i32, i64>);
    /// The group has distributed its partitions, and gave these to this reader in addition to those that it has.
    fn assigned(&self, partitions: &[i32]);
    /// The group took these partitions from this reader.
    fn revoked(&self, partitions: &[i32]);
}

/// Up to where a partition is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownPosition {
    pub(crate) latest: Position,
    /// An earlier one, which is verified next. The latest one may already be of a topic that was created again.
    pub(crate) anchor: Position,
}

impl KnownPosition {
    pub(crate) fn new(position: Position) -> KnownPosition {
        KnownPosition { latest: position, anchor: position }
    }
}

/// Receives the callbacks.
pub(crate) struct ReaderContext<O> {
    pub(crate) observer: O,
    pub(crate) topic: String,
    /// Also verifies stored positions while the reader reads. Only the consumer holds it, because it is closed with it.
    pub(crate) verifier: Arc<Verifier>,
    pub(crate) coverage: Arc<Coverage>,
    /// Up to where each assigned partition is read, as far as it is known.
    pub(crate) positions: Mutex<BTreeMap<i32, KnownPosition>>,
    pub(crate) waits: Mutex<ValidationWaits>,
    pub(crate) silences: Mutex<Silences>,
    pub(crate) is_paused: AtomicBool,
    pub(crate) troubles: mpsc::UnboundedSender<Trouble>,
}

impl<O: ReaderObserver> ClientContext for ReaderContext<O> {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        log_client_error(&error, reason);
    }

    fn stats(&self, statistics: Statistics) {
        if has_no_brokers(&statistics) {
            self.report(Trouble::NoBrokers);
        }
        self.coverage.check(self.verifier.client());
        let Some(topic) = statistics.topics.get(&self.topic) else { return };
        let lags: BTreeMap<i32, i64> = topic
            .partitions
            .iter()
            .filter(|(number, partition)| **number >= 0 && partition.consumer_lag_stored >= 0)
            .map(|(number, partition)| (*number, partition.consumer_lag_stored))
            .collect();
        self.observer.lag(&lags);
        let mut silences = self.silences.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_paused.load(Ordering::Relaxed) {
            silences.forget();
        }
        let assigned = topic.partitions.iter().filter(|(number, partition)| **number >= 0 && partition.desired);
        if let Some(silent) = silences.report(assigned.map(|(number, partition)| (*number, partition.rxmsgs))) {
            let state = topic.partitions.get(&silent).map(described).unwrap_or_default();
            self.report(Trouble::Silent { partition: silent, state });
        }
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, partition) in &topic.partitions {
            if waits.report(*number, &partition.fetch_state) {
                let committed = u64::try_from(partition.committed_offset).is_ok().then_some(partition.committed_offset);
                self.report(Trouble::Stuck(StuckPartition { partition: *number, committed }));
            }
        }
    }
}

impl<O: ReaderObserver> ReaderContext<O> {
    fn report(&self, trouble: Trouble) {
        // A closed channel means that the reader is being closed.
        let _ = self.troubles.send(trouble);
    }

    /// Sets where to read each of these partitions: at its committed offset, or at the beginning if the log has another
    /// record before that offset than when it was committed. Waits for Kafka, for some seconds at most; without an answer
    /// the offset stays the committed one.
    fn set_positions(&self, consumer: &BaseConsumer<Self>, assigned: &mut TopicPartitionList) {
        let committed = match consumer.committed_offsets(assigned.clone(), COMMITTED_TIMEOUT) {
            Ok(committed) => committed,
            Err(error) => return tracing::debug!(%error, "the committed offsets are not verified"),
        };
        let position = |found: &TopicPartitionListElem<'_>| {
            let Offset::Offset(next_offset) = found.offset() else { return None };
            // An offset that a program before this check has committed has no mark.
            Some((found.partition(), Position { next_offset, last: found.metadata().parse().ok()? }))
        };
        let positions: BTreeMap<i32, Position> = committed.elements().iter().filter_map(position).collect();
        if positions.is_empty() {
            return;
        }
        let verdicts = self.verifier.verify(&positions);
        let mut known = self.positions.lock().unwrap_or_else(PoisonError::into_inner);
        known.extend(positions.into_iter().map(|(partition, position)| (partition, KnownPosition::new(position))));
        for (partition, verdict) in verdicts {
            if verdict == Verdict::Different {
                known.remove(&partition);
                tracing::warn!(partition, "the topic was created again: reading the partition from its beginning");
            }
            // The beginning of an empty log is also where it continues.
            if matches!(verdict, Verdict::Different | Verdict::Empty)
                && let Err(error) = assigned.set_partition_offset(&self.topic, partition, Offset::Beginning)
            {
                tracing::warn!(%error, partition, "the partition cannot be read from its beginning");
            }
        }
    }
}

impl<O: ReaderObserver> ConsumerContext for ReaderContext<O> {
    /// As the binding does it, with verified positions.
    fn rebalance(&self, consumer: &BaseConsumer<Self>, code: RDKafkaRespErr, partitions: &mut TopicPartitionList) {
        self.coverage.rebalanced();
        let is_cooperative = matches!(consumer.rebalance_protocol(), RebalanceProtocol::Cooperative);
        let rebalanced = match code {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => {
                self.set_positions(consumer, partitions);
                match is_cooperative {
                    true => consumer.incremental_assign(partitions),
                    false => consumer.assign(partitions),
                }
            }
            _ if is_cooperative => consumer.incremental_unassign(partitions),
            _ => consumer.unassign(),
        };
        if let Err(error) = rebalanced {
            tracing::warn!(%error, "rebalance of the consumer group failed");
        }
        let rebalance = match code {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => Rebalance::Assign(partitions),
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS => Rebalance::Revoke(partitions),
            other => Rebalance::Error(KafkaError::Rebalance(other.into())),
        };
        self.post_rebalance(consumer, &rebalance);
    }

    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(partitions) => {
                tracing::info!(count = partitions.count(), "partitions assigned");
                self.observer.assigned(&numbers(partitions));
            }
            Rebalance::Revoke(partitions) => {
                tracing::info!(count = partitions.count(), "partitions revoked");
                let numbers = numbers(partitions);
                let mut known = self.positions.lock().unwrap_or_else(PoisonError::into_inner);
                known.retain(|partition, _| !numbers.contains(partition));
                drop(known);
                self.observer.revoked(&numbers);
            }
            Rebalance::Error(error) => tracing::warn!(%error, "rebalance of the consumer group failed"),
        }
    }
}

fn numbers(partitions: &TopicPartitionList) -> Vec<i32> {
    partitions.elements().iter().map(|partition| partition.partition()).collect()
}
