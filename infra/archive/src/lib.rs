//! The archive of counter events: Parquet objects in an object store, and nothing else. It holds the only copy of what it has
//! taken over (N15).
//!
//! What lives here: what is archived ([`event`]), the names of objects (`name`), their content (`encode`, `decode`, `verify`, with
//! the `footer` that says what an object has), which of two objects is right (`overlap`), and the [`Archive`] over an object
//! store (`archive`, `find`, `scan`, `merge`, over `reader`), the object stores of clouds (`cloud`), durable files (`local`), and
//! Cassandra with rows to query (`cassandra`, `rows`, `supersede`).
//! What may not: Redis, counters, and the decision what is archived and when.
//!
//! An object has the events of some *spans*: of these shards, every event from a time to a time. Objects never change. A span
//! may be written again, after a crash or after the counters' store has lost its last writes: for each shard and time the
//! object that was written last is right, and the others say nothing.
//!
//! A list of objects may lack some: a merge replaces them meanwhile, or the file system remembers an earlier list. So from the
//! time on that the mark of a namespace has, the spans of each shard follow each other without a gap, and a time without a span
//! means that the list is not complete.

mod archive;
mod cassandra;
mod cloud;
mod decode;
mod encode;
mod error;
pub mod event;
mod find;
mod footer;
mod local;
mod merge;
mod name;
mod overlap;
mod reader;
mod rows;
mod scan;
mod supersede;
#[cfg(test)]
mod tests;
mod verify;

pub use archive::{Archive, slice_of};
pub use error::ArchiveError;
pub use event::{ArchivedEvent, EventKey, EventLookup, Found, NewObject, Reached, Scan, Scope, ShardSpan, Written};
pub use find::Answers;
