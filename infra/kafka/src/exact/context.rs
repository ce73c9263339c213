//! The callbacks of an exact reader's consumer: log, statistics, rebalances.

use super::ledger::{Ledger, TopicPartition};
use super::start::{Positions, starts};
use crate::coverage::Coverage;
use crate::logging::{log_client_error, log_line};
use crate::stuck::{ValidationWaits, has_no_brokers};
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, ConsumerGroupMetadata};
use rdkafka::error::KafkaError;
use rdkafka::statistics::{Partition, Statistics};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Receives what a reader reports in addition to its records. It must not block.
pub trait ExactObserver: Send + Sync + 'static {
    /// How many records behind the end of each assigned partition of this topic the decided position is, about every 5 s. The
    /// mark at the end of a transaction counts as a record.
    fn lag(&self, topic: &str, records_by_partition: &BTreeMap<i32, i64>);
    /// The group has given exactly these partitions to this reader; none: they were taken.
    fn assigned(&self, partitions: &[TopicPartition]);
    /// The group has taken these partitions.
    fn revoked(&self, partitions: &[TopicPartition]);
    /// A transaction has come to this point. A test may end the process there.
    fn reached(&self, step: &'static str);
}

/// The partitions that the reader has, and what was durable of them when it got them.
#[derive(Default)]
pub(super) struct Assignment {
    /// Rises with every change.
    pub(super) number: u64,
    pub(super) ledgers: BTreeMap<TopicPartition, Option<Ledger>>,
    /// The member as which the reader has them. Kafka refuses the transactions of an earlier one. That of the consumer may
    /// change at any time: once it has lost its partitions it has no name, and Kafka would refuse nothing.
    pub(super) member: Option<Arc<ConsumerGroupMetadata>>,
    /// Why the reader cannot continue.
    pub(super) failed: Option<String>,
}

pub(super) struct ExactContext<O> {
    pub(super) observer: O,
    pub(super) positions: Positions,
    pub(super) coverage: Arc<Coverage>,
    pub(super) assignment: Mutex<Assignment>,
    pub(super) waits: Mutex<Vec<ValidationWaits>>,
}

impl<O: ExactObserver> ExactContext<O> {
    pub(super) fn assignment(&self) -> MutexGuard<'_, Assignment> {
        self.assignment.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, why: impl Into<String>) {
        self.assignment().failed.get_or_insert(why.into());
    }
}

/// Lets the statistics know what is decided; the source of the lag. Nothing is committed by it.
pub(super) fn note<O: ExactObserver>(consumer: &BaseConsumer<ExactContext<O>>, decided: &TopicPartitionList) {
    if let Err(error) = consumer.store_offsets(decided) {
        tracing::debug!(%error, "the lag is not known");
    }
}

/// Those that have an offset.
fn known(partitions: &TopicPartitionList) -> TopicPartitionList {
    let mut known = TopicPartitionList::new();
    for partition in partitions.elements().iter().filter(|partition| matches!(partition.offset(), Offset::Offset(_))) {
        let _ = known.add_partition_offset(partition.topic(), partition.partition(), partition.offset());
    }
    known
}

/// How many records are not decided. All that the partition has, if none was ever decided.
fn lag(partition: &Partition) -> Option<i64> {
    if partition.consumer_lag_stored >= 0 {
        return Some(partition.consumer_lag_stored);
    }
    let is_known = partition.stored_offset < 0 && partition.lo_offset >= 0 && partition.ls_offset >= 0;
    is_known.then(|| partition.ls_offset - partition.lo_offset)
}

impl<O: ExactObserver> ClientContext for ExactContext<O> {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        log_client_error(&error, reason);
    }

    fn stats(&self, statistics: Statistics) {
        if has_no_brokers(&statistics) {
            self.fail("the Kafka client knows no broker any more");
        }
        if let Some(verifier) = self.positions.verifiers.first() {
            self.coverage.check(verifier.client());
        }
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, waits) in self.positions.topics.iter().zip(waits.iter_mut()) {
            let Some(topic) = statistics.topics.get(name) else { continue };
            let mut lags = BTreeMap::new();
            for (number, partition) in topic.partitions.iter().filter(|(number, _)| **number >= 0) {
                if let Some(lag) = lag(partition).filter(|_| partition.desired) {
                    lags.insert(*number, lag);
                }
                if waits.report(*number, &partition.fetch_state) {
                    self.fail(format!("the Kafka client has stopped reading partition {number} of {name}"));
                }
            }
            self.observer.lag(name, &lags);
        }
    }
}

impl<O: ExactObserver> ConsumerContext for ExactContext<O> {
    /// The whole assignment is given and taken at once: the assignor is not a cooperative one.
    fn rebalance(&self, consumer: &BaseConsumer<Self>, code: RDKafkaRespErr, partitions: &mut TopicPartitionList) {
        self.coverage.rebalanced();
        let (mut ledgers, mut member) = (BTreeMap::new(), None);
        let rebalanced = if code == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            member = consumer.group_metadata().filter(|_| !consumer.assignment_lost());
            match starts(&self.positions, consumer, partitions) {
                Ok(found) => {
                    ledgers = found;
                    let assigned = consumer.assign(partitions);
                    note(consumer, &known(partitions));
                    assigned
                }
                // Without durable positions nothing is read.
                Err(error) => {
                    self.fail(format!("the durable positions are not known: {error}"));
                    consumer.assign(&TopicPartitionList::new())
                }
            }
        } else {
            consumer.unassign()
        };
        if let Err(error) = rebalanced {
            self.fail(format!("rebalance of the consumer group: {error}"));
        }
        tracing::info!(count = ledgers.len(), "partitions assigned");
        let partitions =
            |ledgers: &BTreeMap<TopicPartition, Option<Ledger>>| ledgers.keys().copied().collect::<Vec<_>>();
        let mut assignment = self.assignment();
        self.observer.revoked(&partitions(&assignment.ledgers));
        self.observer.assigned(&partitions(&ledgers));
        assignment.number += 1;
        assignment.ledgers = ledgers;
        assignment.member = member.map(Arc::new);
    }
}
