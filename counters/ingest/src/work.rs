//! What the memberships of a process share, and why one ends.

use crate::outputs::Targets;
use crate::sender::Sender;
use crate::steps::Steps;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tallystone_kafka::{ExactOptions, KafkaConfigError, NotVerified};
use tokio::sync::watch;

/// The number of the topic of adds in the reader's list.
pub(crate) const SOURCE: usize = 0;
/// That of the topic of late records.
pub(crate) const LATE: usize = 1;

/// Why a membership has ended. Another one can do better.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MembershipError {
    #[error(transparent)]
    Config(#[from] KafkaConfigError),
    #[error("Kafka: {0}")]
    Kafka(#[from] rdkafka::error::KafkaError),
    #[error(transparent)]
    NotVerified(#[from] NotVerified),
    #[error("{0}")]
    Reader(String),
}

/// What memberships share.
pub(crate) struct Work {
    pub(crate) reader: ExactOptions,
    pub(crate) transactional_id: String,
    pub(crate) targets: Targets,
    pub(crate) sender: Arc<Sender>,
    pub(crate) namespace: Option<String>,
    pub(crate) batch_records_max: usize,
    /// Whether adds are counted without trouble.
    pub(crate) is_serving: watch::Sender<bool>,
    pub(crate) undecided: Arc<AtomicU64>,
    pub(crate) steps: Steps,
}
