//! The counters of Tallystone: adds are events in a log, each counted once; rollups sum what can no longer change.
//!
//! What lives here: what callers name and why a call is refused ([`names`], [`refusal`]); the configuration of a namespace
//! ([`namespace`]); the stores as narrow traits ([`log`], [`checkpoints`], [`cache`]) with two implementations, Redis
//! ([`redis`]) and in memory ([`oracle`], their executable meaning); the bounds on reads of the archive (`archive_reads`); the rollup ([`rollup`]), the reading of counts
//! ([`read`]) and of sums by period ([`sums`]), their audit and recount ([`audit`], [`recount`]), the feed of passed
//! thresholds ([`crossings`]), the sums over regions ([`regions`]), the highest counts ([`top`]), and their publication ([`publish`]); what an installation needs for a load ([`plan`]); the
//! service over them ([`service`]), as gRPC and as JSON over HTTP ([`api`]). What may not: the workers that run rollups
//! (tallystone-workers), and the queue, which is reached through its client only.
//!
//! The design follows Netflix's Distributed Counter Abstraction: rows N1 to N11 of docs/spec.md.

pub mod api;
mod archive_reads;
pub mod audit;
pub mod cache;
pub mod checkpoints;
mod config;
pub mod crossings;
pub mod log;
pub mod names;
pub mod namespace;
pub mod oracle;
pub mod plan;
pub mod publish;
pub mod read;
pub mod recount;
pub mod redis;
pub mod refusal;
pub mod regions;
pub mod rollup;
pub mod service;
pub mod sums;
pub mod top;

mod metrics;

pub use cache::Cache;
pub use checkpoints::{Checkpoint, CheckpointUpdate, Checkpoints, Commit, Deletions, Epoch, LeaseOrder};
pub use config::{ArchiveConfig, CountersConfig, EventArchive, check_queue_url};
pub use crossings::{CrossingEntry, CrossingLists};
pub use log::{
    Appended, Bounds, Change, Closed, Due, Event, EventScan, Events, Labels, NewEvent, Pending, RollupLog,
    RollupSchedule, Sealed, Settlement, Window,
};
pub use names::{CounterName, NamespaceName, RegionName, Token};
pub use namespace::NamespaceConfig;
pub use recount::{Recounted, Recounts};
pub use refusal::Refusal;
pub use rollup::{Job, RolledUp, roll_up};
