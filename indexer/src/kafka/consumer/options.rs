//! What an indexer reads, in which portions, and why it ends.

use crate::HistoryError;
use rdkafka::error::KafkaError;
use tallystone_kafka::{KafkaConfigError, KafkaOptions};

/// What an indexer reads, and in which portions.
#[derive(Clone, Debug)]
pub struct IndexerOptions {
    /// The cluster and the events topic.
    pub kafka: KafkaOptions,
    /// The consumer group. All indexers that fill one store share it.
    pub group: String,
    /// The name by which the group knows this indexer across restarts, unique in the group; `None`: each start is a new
    /// member.
    pub instance: Option<String>,
    /// The most events in one call of the store.
    pub batch_events_max: usize,
    /// The most bytes in one call of the store, counted as in Kafka. The indexer's memory is bounded by
    /// `batch_bytes_max * (batches_max + 1)`, and 16 MiB that librdkafka fetches ahead
    /// (`queued.max.messages.kbytes`).
    pub batch_bytes_max: usize,
    /// The most calls of the store at the same time.
    pub batches_max: usize,
}

impl Default for IndexerOptions {
    fn default() -> Self {
        IndexerOptions {
            kafka: KafkaOptions::default(),
            group: "tallystone-indexer".to_owned(),
            instance: None,
            batch_events_max: 4_000,
            batch_bytes_max: 4 * 1024 * 1024,
            batches_max: 4,
        }
    }
}

/// Why an indexer ended before its shutdown.
#[derive(Debug, thiserror::Error)]
pub enum IndexerError {
    /// The options were refused.
    #[error(transparent)]
    Config(#[from] KafkaConfigError),
    /// The store failed in a way that no retry mends.
    #[error(transparent)]
    Store(#[from] HistoryError),
    /// Another indexer has joined the group under the same name, again and again.
    #[error(
        "another indexer of the group has joined as {0:?}, and has taken the partitions of this one: set \
         `indexer.instance` to a name of which there is only one"
    )]
    Replaced(String),
    /// Kafka's client failed for good.
    #[error("Kafka: {0}")]
    Kafka(#[from] KafkaError),
}
