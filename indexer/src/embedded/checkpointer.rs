//! Copies the write-ahead log back into the file while the writer continues.

use super::error::EmbeddedError;
use super::schema::open_checkpointer;
use nix::fcntl::Flock;
use rusqlite::Connection;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A log with this many pages left starts the checkpointer.
const CHECKPOINT_PAGES: i64 = 4_000;
/// Passes over a log that grows meanwhile. SQLite restarts the log only once all of it is copied.
const PASSES_MAX: usize = 3;

/// A connection that only copies the log.
pub(super) struct Checkpointer {
    connection: Mutex<Connection>,
    _lock: Arc<Flock<File>>,
}

impl Checkpointer {
    pub(super) fn open(path: &Path, lock: Arc<Flock<File>>) -> Result<Checkpointer, EmbeddedError> {
        let connection =
            open_checkpointer(path).map_err(|source| EmbeddedError::Sql { path: path.to_owned(), source })?;
        Ok(Checkpointer { connection: Mutex::new(connection), _lock: lock })
    }

    /// Copies the log, unless another thread does so already. Blocks.
    pub(super) fn run(&self) {
        let Ok(connection) = self.connection.try_lock() else { return };
        for _ in 0..PASSES_MAX {
            match checkpoint(&connection, "PASSIVE") {
                Ok(log) if log.pages_left() > 0 => {}
                Ok(_) => return,
                Err(error) => return tracing::warn!(%error, "cannot copy the history's write-ahead log into its file"),
            }
        }
    }
}

/// Whether the log is long enough for the checkpointer.
pub(super) fn is_log_long(connection: &Connection) -> bool {
    checkpoint(connection, "NOOP").is_ok_and(|log| log.pages_left() >= CHECKPOINT_PAGES)
}

/// Copies as much of the log as the readers' snapshots allow.
pub(super) fn copy_log(connection: &Connection) -> rusqlite::Result<()> {
    checkpoint(connection, "PASSIVE").map(|_| ())
}

/// The state of the write-ahead log.
struct LogState {
    pages: i64,
    copied: i64,
}

impl LogState {
    fn pages_left(&self) -> i64 {
        self.pages - self.copied
    }
}

/// Runs a checkpoint in this mode of SQLite; "NOOP" only reads the state.
fn checkpoint(connection: &Connection, mode: &str) -> rusqlite::Result<LogState> {
    connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
        Ok(LogState { pages: row.get(1)?, copied: row.get(2)? })
    })
}
