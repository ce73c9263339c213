//! Kafka clients, set up the same way for every part of Tallystone that writes or reads a topic.
//!
//! What lives here: the configuration section (`config`), the connection options (`options`), topics (`topic`), an
//! idempotent producer (`producer`) and a consumer-group reader (`reader`). What may not: the content of a record. The history sink and the history consumer
//! are in `tallystone-indexer`; other readers of the topic depend on this crate alone.

mod config;
mod logging;
mod options;
mod producer;
mod reader;
mod topic;

pub use config::KafkaConfig;
pub use options::{KafkaConfigError, KafkaOptions};
pub use producer::{Delivery, Producer, Record};
pub use reader::{GroupReader, ReaderObserver, StuckPartition};
pub use topic::{Topic, TopicSpec};
