//! The indexer: a member of a consumer group that writes the records of its partitions to a history store.
//!
//! What lives here: the read loop (`indexer`), decoding records into batches (`batch`), handing batches to the store
//! (`settle`), records that no store can take (`dead_letters`), reporting watermarks to the store (`progress`), how often it
//! joins again under its name (`rejoins`), and
//! noticing a topic that was created again (`topic_check`). What may not: how a store keeps events.
//!
//! The order of steps must not change. The store records a batch; Kafka acknowledges its dead letters; only then are
//! its offsets committed and its watermarks reported, and only after those of all batches before it. A crash in
//! between makes the indexer read records again, which changes nothing in the store.

mod batch;
mod dead_letters;
mod indexer;
mod metrics;
mod options;
mod progress;
mod rejoins;
mod retry;
mod settle;
mod topic_check;

pub use dead_letters::dead_letter_topic;
pub use indexer::run;
pub use metrics::BUCKETS;
pub use options::{IndexerError, IndexerOptions};
