//! The counters of Tallystone: adds are events in a log, each counted once; rollups sum what can no longer change.
//!
//! What lives here: what callers name and may ask ([`names`], [`refusal`]), what a namespace is told ([`namespace`]), the
//! two stores as traits ([`log`], [`checkpoints`]) with one Redis behind both ([`redis`]), the rollup ([`rollup`]) and
//! the reading of counts ([`read`]); and the service over them ([`service`]), as gRPC and as JSON over HTTP ([`api`]). What
//! may not: the workers that roll up (tallystone-workers), and the queue that says when and to whom: it is spoken to
//! through its client.
//!
//! After Netflix's Distributed Counter Abstraction, rows N1 to N11 of the specification.

pub mod api;
pub mod checkpoints;
pub mod log;
pub mod names;
pub mod namespace;
pub mod read;
pub mod redis;
pub mod refusal;
pub mod rollup;
pub mod service;

mod metrics;

pub use checkpoints::{Checkpoint, CheckpointUpdate, Checkpoints, Commit, LeaseOrder};
pub use log::{Appended, Change, Closed, Due, Event, EventLog, EventScan, NewEvent, Pending, Sealed, Settled, Window};
pub use names::{CounterName, NamespaceName, Token};
pub use namespace::NamespaceConfig;
pub use refusal::Refusal;
pub use rollup::{Job, RolledUp, roll_up};
