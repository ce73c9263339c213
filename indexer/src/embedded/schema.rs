//! The file: whose it is, its layout and version, and how connections to it behave.

use super::{EmbeddedError, EmbeddedOptions};
use nix::fcntl::{Flock, FlockArg};
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Says in the file's header that it is ours: "TSHI".
const APPLICATION_ID: i32 = 0x5453_4849;
/// Of `schema.sql`; a file with a higher one is left alone.
const VERSION: i32 = 1;
const SCHEMA: &str = include_str!("schema.sql");

/// Pages in memory: the writer touches the ends of many trees, a reader few pages of each.
const WRITER_CACHE_KIB: i32 = 64 * 1024;
const READER_CACHE_KIB: i32 = 8 * 1024;
/// Pages of the write-ahead log after which the writer itself writes it back into the file: where it never pauses,
/// the [checkpointer](super::connections) cannot come to the log's end.
const LOG_PAGES_MAX: i32 = 24_000;
/// What the write-ahead log is cut back to when it starts anew.
const LOG_BYTES_KEPT: i64 = 64 * 1024 * 1024;
/// For the moments where SQLite itself needs the file alone; our own processes are kept out by [`lock`].
const BUSY: Duration = Duration::from_secs(10);
/// Statements kept prepared; more than there are.
const STATEMENTS: usize = 128;

/// Keeps other processes out for as long as it lives. A file of its own: to close a second handle of the database
/// would drop SQLite's own locks.
pub(super) fn lock(path: &Path) -> Result<Flock<File>, EmbeddedError> {
    let lock_path = beside(path, ".lock");
    let unusable = |source| EmbeddedError::Unusable { path: lock_path.clone(), source };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(unusable)?;
    }
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path).map_err(unusable)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        nix::errno::Errno::EWOULDBLOCK => EmbeddedError::InUse { path: path.to_owned() },
        errno => unusable(errno.into()),
    })
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The connection that writes. Makes what is not there yet.
pub(super) fn open_writer(options: &EmbeddedOptions) -> Result<Connection, EmbeddedError> {
    let path = &options.path;
    let failed = |error: rusqlite::Error| match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => EmbeddedError::Foreign { path: path.clone() },
        _ => EmbeddedError::Sql { path: path.clone(), source: error },
    };
    let mut connection = Connection::open(path).map_err(failed)?;
    check(&connection, path)?;
    // Before the first table, or it has no effect.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(failed)?;
    connection.pragma_update(None, "journal_mode", "WAL").map_err(failed)?;
    // The outbox is trimmed once a record has answered.
    connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
    connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB).map_err(failed)?;
    connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES_MAX).map_err(failed)?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES_KEPT).map_err(failed)?;
    connection.busy_timeout(BUSY).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    create(&mut connection).map_err(failed)?;
    Ok(connection)
}

/// The connection that writes the log back into the file.
pub(super) fn open_checkpointer(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}

/// A connection that reads.
pub(super) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
    connection.busy_timeout(BUSY)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// Refuses what is not ours, before anything is written to it.
fn check(connection: &Connection, path: &Path) -> Result<(), EmbeddedError> {
    let look = || -> rusqlite::Result<(i32, i32, i64)> {
        Ok((
            connection.pragma_query_value(None, "application_id", |row| row.get(0))?,
            connection.pragma_query_value(None, "user_version", |row| row.get(0))?,
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?,
        ))
    };
    let path = path.to_owned();
    match look() {
        Ok((0, 0, 0)) => Ok(()),
        Ok((APPLICATION_ID, 1..=VERSION, _)) => Ok(()),
        Ok((APPLICATION_ID, version, _)) => Err(EmbeddedError::Newer { path, version, known: VERSION }),
        Ok(_) => Err(EmbeddedError::Foreign { path }),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            Err(EmbeddedError::Foreign { path })
        }
        Err(source) => Err(EmbeddedError::Sql { path, source }),
    }
}

fn create(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: i32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version == 0 {
        transaction.execute_batch(SCHEMA)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    transaction.commit()
}
