//! Adds from a Kafka topic, each counted exactly once (N17).
//!
//! What lives here: what a record means (`record`, `add`), its identity (`token`), and what happens to it (`route`), without
//! I/O; the calls of the counters (`sender`); what is written again or given up (`outputs`); the loop of a member of the
//! consumer group (`member`, over `batch`; `work` is what all share), and its repetition (`run`); this machine's `clock`; the points
//! at which a test ends the process (`steps`). What may not: how counters count, and how positions are kept in Kafka, which
//! `tallystone-kafka` does (`exact`).
//!
//! The order of steps must not change. One transaction writes what happened to a batch together with the positions after it,
//! and claims the next batch; only then is the first add of that batch sent. So after a crash it is known which adds may
//! have counted: those of one batch. They are sent again with the same tokens.

mod add;
mod batch;
mod clock;
mod config;
mod member;
mod metrics;
mod outputs;
mod record;
mod route;
mod run;
mod sender;
mod steps;
mod token;
mod work;

pub use config::IngestConfig;
pub use run::{IngestError, IngestOptions, run};
pub use steps::Steps;
