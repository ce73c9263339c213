//! The history's use of Kafka: the sink of the relay, and the consumer that fills a history store.
//!
//! What lives here: which records of the events topic are written (`sink`) and how they are read into a store
//! (`consumer`). What may not: the setup of Kafka clients (`tallystone-kafka`), the encoding of events
//! (`crate::wire`), and how a store keeps them.

mod consumer;
mod sink;

pub use consumer::{BUCKETS, IndexerError, IndexerOptions, dead_letter_topic, run};
pub use sink::{KafkaSink, WATERMARK_EVERY};
