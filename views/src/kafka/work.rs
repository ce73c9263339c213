//! What the memberships of a process share, what they report, and why one ends.

use super::appends::KafkaPartition;
use super::connect::KafkaLog;
use crate::config::ViewNamespace;
use crate::metrics;
use crate::owner::PairsMemory;
use crate::steps::StepObserver;
use rdkafka::error::KafkaError;
use std::collections::BTreeMap;
use std::sync::Arc;
use tallystone_kafka::{ExactObserver, KafkaConfigError, NotVerified, TopicPartition};

/// Why a membership has ended. Another one can do better.
#[derive(Debug, thiserror::Error)]
pub(super) enum ViewMembershipError {
    #[error(transparent)]
    Config(#[from] KafkaConfigError),
    #[error("Kafka: {0}")]
    Kafka(#[from] KafkaError),
    #[error(transparent)]
    NotVerified(#[from] NotVerified),
    #[error("{0}")]
    Reader(String),
}

/// What the memberships of a process share.
pub(crate) struct Work {
    pub(crate) log: Arc<KafkaLog>,
    pub(crate) partitions: Vec<Arc<KafkaPartition>>,
    pub(crate) namespaces: Vec<ViewNamespace>,
    pub(crate) memory: Arc<PairsMemory>,
}

/// Receives what the reader reports.
pub(super) struct Observer {
    pub(super) steps: StepObserver,
}

impl ExactObserver for Observer {
    fn lag(&self, _: &str, records_by_partition: &BTreeMap<i32, i64>) {
        records_by_partition.iter().for_each(|(partition, records)| metrics::lag(*partition, *records));
    }

    fn assigned(&self, _: &[TopicPartition]) {}

    fn revoked(&self, _: &[TopicPartition]) {}

    fn reached(&self, step: &'static str) {
        (self.steps)(step);
    }
}
