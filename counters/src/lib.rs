//! The counters of Tallystone: adds are events in a log, each counted once; rollups sum what can no longer change.
//!
//! What lives here: what callers name and may ask ([`names`], [`refusal`]), what a namespace is told ([`namespace`]), the
//! two stores as traits ([`log`], [`checkpoints`]) with one Redis behind both ([`redis`]), the rollup ([`rollup`]) and
//! the reading of counts ([`read`]). What may not: the queue that says when a rollup is due and to whom
//! (tallystone-client), and the wire.
//!
//! After Netflix's Distributed Counter Abstraction, rows N1 to N11 of the specification.

pub mod checkpoints;
pub mod log;
pub mod names;
pub mod namespace;
pub mod read;
pub mod redis;
pub mod refusal;
pub mod rollup;

pub use checkpoints::{Checkpoint, Checkpoints, Commit, LeaseOrder, Step};
pub use log::{Appended, Change, Due, Event, EventLog, Granule, NewEvent, Pending, Sealed, Settled};
pub use names::{CounterName, NamespaceName, Token};
pub use namespace::NamespaceConfig;
pub use refusal::Refusal;
pub use rollup::{Job, RolledUp, roll_up};
