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
use std::time::Duration;

/// How often a relay tells how far it is: a record to every partition. The indexer shows what it has written each time,
/// so it is also how soon a transition can be found, but for the way there (docs/performance.md, `searchable`).
pub const WATERMARK_EVERY: Duration = Duration::from_millis(500);

/// The header that tells events and watermarks apart.
const TYPE: &str = "tallystone-type";
/// Its value for an event.
const EVENT: &[u8] = b"event";
/// Its value for a watermark.
const WATERMARK: &[u8] = b"watermark";
