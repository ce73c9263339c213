//! The rollup workers: they take jobs from the rollup queues of every namespace and roll counters up, in batches.
//!
//! What lives here: the workers of all rollup queues ([`RollupWorkers`]), their batches and the pauses between them, the
//! archiver, what they publish into counter sets, and the records of their rollups, with the check that no two of one counter overlap ([`overlapping`]). What may not: how a
//! counter is rolled up (tallystone-counters), and the queue, which is reached through its client only.
//!
//! The queue guarantees that no two rollups of one counter run at the same time (N8). The store guarantees that a worker
//! which was paused beyond its lease cannot change a count.

mod archiver;
mod batches;
mod config;
mod metrics;
mod pacer;
mod publisher;
mod records;
mod rollups;
mod workers;

pub use config::RollupWorkerConfig;
pub use metrics::BUCKETS;
pub use records::{Record, Records, RollupStage};
pub use rollups::{Rollup, overlapping, rollups};
pub use workers::{RollupWorkers, WorkerOptions};
