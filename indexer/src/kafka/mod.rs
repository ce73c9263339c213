//! Kafka at both ends: the sink of the relay, and the consumer that fills a history store.
//!
//! What lives here: everything that speaks to Kafka, and the layout of the topic as the head of `event.proto` tells
//! it. What may not: what an event means, and which store it goes to.

mod client;
mod consumer;
mod options;
mod producer;
mod sink;
mod topic;

pub use consumer::{IndexerError, IndexerOptions, run};
pub use options::{KafkaConfigError, KafkaOptions};
pub use sink::KafkaSink;

/// The header that tells events and watermarks apart.
const TYPE: &str = "tallystone-type";
/// Its value for an event.
const EVENT: &[u8] = b"event";
/// Its value for a watermark.
const WATERMARK: &[u8] = b"watermark";
