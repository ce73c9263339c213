//! The rollup workers: they take jobs from the rollup queues of every namespace and roll counters up, in batches.
//!
//! What lives here: which queues are worked on ([`RollupWorkers`]), the batches and the pauses between them, and the
//! records of what was done when, with the proof that they hold ([`overlapping`]). What may not: how a counter is rolled up (tallystone-counters), and anything of the queue
//! but its client.
//!
//! That no two rollups of one counter run at a time is the queue's promise (N8); that a worker which was paused beyond
//! its lease cannot change a count is the store's.

mod batches;
mod config;
mod metrics;
mod pacer;
mod records;
mod rollups;
mod workers;

pub use config::RollupWorkerConfig;
pub use records::{Record, Records, RollupStage};
pub use rollups::{Rollup, overlapping, rollups};
pub use workers::{RollupWorkers, WorkerOptions};
