//! The log of views on Kafka: views that were accepted, keyed by video; the pairs that have counted; and deltas for the
//! counters, which `tallystone-ingest` counts (N17).
//!
//! What lives here: the topics and how the log is created (`topics`, `connect`), what accepts views (`appends`), the records of
//! the state (`records`), the state of a partition (`partition`), a member of the consumer group that deduplicates (`member`,
//! which has its partitions in `owned`; `work` is what all share), and its repetition (`run`). What may not: which views count
//! (`dedupe`), and how positions are kept in Kafka, which `tallystone-kafka` does (`exact`).
//!
//! One transaction writes the new pairs, the deltas and the positions. So what is durable of a partition is always a function
//! of the same prefix of it. A member that has lost its partitions cannot commit: Kafka compares the generation of the group.

mod appends;
mod connect;
mod member;
mod owned;
mod partition;
mod records;
mod run;
mod topics;
mod work;

pub use connect::{KafkaLog, KafkaLogError};
pub(crate) use run::{Members, membership_count};
pub use topics::ViewTopics;
pub(crate) use work::Work;
