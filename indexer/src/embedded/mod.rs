//! The embedded history store: SQLite, in one file of this process, for one machine (Q21).
//!
//! What lives here: the file and its connections (`schema`, `connections`), what is written to it (`record`, `prune`)
//! and what is asked of it (`trace`, `search`, `stats`, `depth`). What may not: anything that another history store
//! would need, too.
//!
//! One connection writes; readers have their own and a snapshot each, so neither waits for the other. Another writes
//! the log back into the file meanwhile, so that the writer seldom has to. Memory: 64 MiB
//! of pages for the writer, 8 MiB for each of four readers, and the events of one call.

mod connections;
mod depth;
mod plan;
mod prune;
mod record;
mod rows;
mod schema;
mod search;
mod sql;
mod stats;
mod trace;

use crate::{DepthQuery, HistoryError, HistoryStore, Rejected, SearchQuery, Source, StatsQuery, Trace, TraceQuery};
use connections::Connections;
use rusqlite::{Connection, params};
use std::path::PathBuf;
use std::sync::Arc;
use tallystone_model::{Recorded, Sink, SinkError};
use tallystone_proto::history::v1::{Activity, IndexedMessage};

const RETENTION_MS: u64 = 7 * 86_400_000;
const MAX_BYTES: u64 = 4 * 1024 * 1024 * 1024;

/// Where the history is, and how much of it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddedOptions {
    /// The file. Two more stand beside it: its write-ahead log (`-wal`, `-shm`), and `.lock`.
    pub path: PathBuf,
    /// Transitions older than this go, and so do messages that have been gone for longer. Seven days by default.
    pub retention_ms: u64,
    /// The largest size of the file: near it the oldest goes first. 4 GiB by default. One call may come past it by
    /// the size of its own events. Beside the file its write-ahead log takes up to 100 MiB, more only while a single
    /// question takes long to answer.
    pub max_bytes: u64,
}

impl EmbeddedOptions {
    /// The defaults, in this file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        EmbeddedOptions { path: path.into(), retention_ms: RETENTION_MS, max_bytes: MAX_BYTES }
    }
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// Its folder, or the lock beside it.
    #[error("cannot use {}: {source}", path.display())]
    Unusable {
        /// What cannot be used.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Another process has it.
    #[error("the history {} is in use by another process; stop that first, or name another file", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It is something else.
    #[error("{} is not a history of Tallystone; name another file, or move this one away", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// It is of a later release.
    #[error(
        "the history {} has layout {version}, and this program knows layouts up to {known}; \
         run the newer program again, or move the file away", path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its layout.
        version: i32,
        /// The newest that this program knows.
        known: i32,
    },
    /// SQLite says no.
    #[error("cannot open the history {}: {source}", path.display())]
    Sql {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: rusqlite::Error,
    },
}

/// A history in one file. One process at a time has it; within that process it may be shared freely.
pub struct Embedded {
    options: EmbeddedOptions,
    connections: Connections,
}

impl Embedded {
    /// Opens the file, or makes it. Blocks for as long as that takes: milliseconds, or the recovery after a crash.
    pub fn open(options: EmbeddedOptions) -> Result<Embedded, EmbeddedError> {
        let connections = Connections::open(&options)?;
        Ok(Embedded { options, connections })
    }

    async fn take(&self, events: Arc<Vec<Recorded>>) -> Result<Vec<Rejected>, HistoryError> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let options = self.options.clone();
        self.connections
            .write(move |writing| {
                let rejected = record::record(writing, &events)?;
                prune::make_room(&writing.transaction, &options, events.len())?;
                Ok(rejected)
            })
            .await
    }

    async fn ask<Q, T>(&self, query: &Q, answer: fn(&Connection, &Q) -> rusqlite::Result<T>) -> Result<T, HistoryError>
    where
        Q: Clone + Send + 'static,
        T: Send + 'static,
    {
        let query = query.clone();
        self.connections.read(move |connection| answer(connection, &query)).await
    }
}

impl HistoryStore for Embedded {
    async fn record(&self, events: &[Recorded]) -> Result<Vec<Rejected>, HistoryError> {
        self.take(Arc::new(events.to_vec())).await
    }

    async fn advance(&self, source: Source, up_to_ms: u64) -> Result<(), HistoryError> {
        const ADVANCE: &str = "INSERT INTO sources (number, of, up_to_ms) VALUES (?1, ?2, ?3) \
             ON CONFLICT (number) DO UPDATE SET of = max(of, excluded.of), up_to_ms = max(up_to_ms, excluded.up_to_ms)";
        let up_to_ms = i64::try_from(up_to_ms).unwrap_or(i64::MAX);
        self.connections
            .write(move |writing| {
                let mut advance = writing.transaction.prepare_cached(ADVANCE)?;
                advance.execute(params![source.number, source.of, up_to_ms])?;
                Ok(())
            })
            .await
    }

    async fn watermark(&self) -> Result<Option<u64>, HistoryError> {
        const WATERMARK: &str = "SELECT CASE WHEN count(*) >= max(of) THEN min(up_to_ms) END FROM sources";
        let read = |connection: &Connection| -> rusqlite::Result<Option<i64>> {
            connection.prepare_cached(WATERMARK)?.query_row([], |row| row.get(0))
        };
        Ok(self.connections.read(read).await?.map(|up_to_ms| up_to_ms as u64))
    }

    async fn trace(&self, query: &TraceQuery) -> Result<Trace, HistoryError> {
        self.ask(query, trace::trace).await
    }

    async fn search(&self, query: &SearchQuery) -> Result<Vec<IndexedMessage>, HistoryError> {
        self.ask(query, search::search).await
    }

    async fn stats(&self, query: &StatsQuery) -> Result<Vec<Activity>, HistoryError> {
        self.ask(query, stats::stats).await
    }

    async fn depth(&self, query: &DepthQuery) -> Result<[u64; 6], HistoryError> {
        self.ask(query, depth::depth).await
    }

    async fn prune(&self, now_ms: u64) -> Result<bool, HistoryError> {
        let options = self.options.clone();
        let pruned = self.connections.write(move |writing| prune::step(writing, &options, now_ms)).await?;
        if pruned.shrunk && !pruned.more {
            self.connections.checkpoint().await?;
        }
        Ok(pruned.more)
    }
}

/// Fed by the relay itself, which is its only source.
impl Sink for Embedded {
    async fn deliver(&self, events: Arc<Vec<Recorded>>) -> Result<(), SinkError> {
        for Rejected { index, why } in self.take(events).await.map_err(|error| SinkError(error.to_string()))? {
            tracing::error!(index, why, "an event that the history can never take is left out");
        }
        Ok(())
    }

    async fn delivered_to(&self, up_to_ms: u64) -> Result<(), SinkError> {
        let relay = Source { number: 0, of: 1 };
        self.advance(relay, up_to_ms).await.map_err(|error| SinkError(error.to_string()))
    }
}
