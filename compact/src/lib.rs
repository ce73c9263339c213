//! The tables of the compact counter store (seed 001, rows W1 to W3): all counters of an id in a few bytes.
//!
//! What lives here: schemas, tables, dictionaries, tokens, the pages of cold tables, and the pieces of a dump. What may not: files,
//! sockets, clocks, threads, `unsafe`. The module of Redis (`compact/module`) does the I/O and passes the time.
//!
//! A [`CounterSet`] is the value of one key. Its logical state (values, schema, options, tokens) follows from the commands
//! alone. Where a record lies (which slot, in memory or in a file) is local to a process and may differ on a replica.

mod bytes;
mod cold;
mod hash;
mod layout;
mod options;
mod record;
mod refusal;
mod schema;
mod set;
mod table;
mod tokens;

pub use cold::{
    Entry, Fetched, FileId, Folded, MergeJob, Merged, Need, PAGE_BYTES, Page, PageFault, PageIndex, PageRef,
    PageWriter, Patch, PatchPart, Replaced, Unsorted, write_sorted,
};
pub use options::{Options, Order};
pub use record::Record;
pub use refusal::{Damage, Refusal};
pub use schema::{Field, Schema};
pub use set::{Change, CounterSet, Dump, Figure, Figures, Job, Mode, PageFiles, Scan, SpillJob, Totals};
pub use table::LINE_BYTES;
pub use tokens::{Admission, TOKEN_AHEAD_MS, TOKEN_BYTES_MAX, Token};

/// Ids of one command at most. Of so many new ones, a split of a table or a large dictionary takes less than 1 ms; so does a read of as many
/// ids that are in files.
pub const IDS_MAX: usize = 512;
/// Values of one reply at most.
pub const VALUES_MAX: usize = 4_096;
/// Tables of one set at most, in memory and in files: some commands visit all of them. A larger set, as a snapshot may have it, gets no
/// more.
pub const SET_TABLES_MAX: usize = 4_096;
