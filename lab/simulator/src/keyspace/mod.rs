//! The data of one simulated Redis, and how its last writes are undone.
//!
//! What lives here: the values of keys (`value`), the log of what each write replaced (`undo`), the keys themselves with
//! their expiry (`keys`), error replies (`fault`). What may not: commands and their syntax (`commands/`).

mod fault;
mod keys;
mod undo;
mod value;

pub(crate) use fault::Fault;
pub use keys::Keyspace;
pub(crate) use value::{Bytes, Data, Entry, Sorted, Stream, StreamId};
