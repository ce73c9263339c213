//! The embedded history store: SQLite, in one file of this process, for one machine (Q21).
//!
//! What lives here: the store (`store`), its file and connections (`schema`, `connections`, `readers`, `checkpointer`),
//! the writes (`record`, `losses`, `repair`, `prune`) and the queries (`trace`, `search` with `plan` and `sql`, `stats`, `depth`). What may
//! not: anything that the other history store needs too.
//!
//! One connection writes. Each reader has its own connection and reads a snapshot, so reads and writes never
//! wait for each other. A third kind of connection copies the write-ahead log back into the file, so that the writer
//! seldom has to. Memory: 64 MiB of pages for the writer, 8 MiB for each of four readers, and the events of one call.

mod checkpointer;
mod connections;
mod depth;
mod error;
mod losses;
mod options;
mod plan;
mod prune;
mod queues_kept;
mod readers;
mod record;
mod repair;
mod rows;
mod schema;
mod search;
mod sql;
mod stats;
mod store;
mod trace;

pub use error::EmbeddedError;
pub use options::EmbeddedOptions;
pub use store::Embedded;
