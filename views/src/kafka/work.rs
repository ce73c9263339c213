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
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tallystone_kafka::{ExactObserver, KafkaConfigError, NotVerified, TopicPartition};

/// For how long records are taken before a commit, if no more than a few deltas wait for the counters, and at most.
const GATHER: Duration = Duration::from_millis(50);
const GATHER_MAX: Duration = Duration::from_secs(5);
/// The counters take so many adds in a fraction of a second.
const DELTAS_FEW: u64 = 5_000;

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
    /// Adds that wait for the counters in the partitions of deltas of this process. Its consumer of the deltas reports the number.
    pub(crate) waiting_deltas: Arc<AtomicU64>,
}

impl Work {
    /// For how long views gather for a commit. Each video with views is one add in each commit, however many views it has. So while adds
    /// wait, fewer commits make fewer adds.
    pub(super) fn gather_time(&self) -> Duration {
        gather_time(self.waiting_deltas.load(Ordering::Relaxed))
    }
}

fn gather_time(waiting_deltas: u64) -> Duration {
    let factor = u32::try_from(1 + waiting_deltas / DELTAS_FEW).unwrap_or(u32::MAX);
    GATHER.saturating_mul(factor).min(GATHER_MAX)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v4_views_gather_for_longer_the_more_deltas_wait() {
        let waiting = [0, DELTAS_FEW - 1, DELTAS_FEW, 19 * DELTAS_FEW, 1_000 * DELTAS_FEW, u64::MAX];
        let gathered_ms = waiting.map(|waiting| gather_time(waiting).as_millis());
        assert_eq!(gathered_ms, [50, 50, 100, 1_000, 5_000, 5_000]);
    }
}
