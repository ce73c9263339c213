//! The file: its owner, layout and version, and the settings of connections to it.

use super::error::EmbeddedError;
use super::options::EmbeddedOptions;
use nix::fcntl::{Flock, FlockArg};
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Marks the file in its header as a history of Tallystone: "TSHI".
const APPLICATION_ID: i32 = 0x5453_4849;
/// The version of `schema.sql`. A file with a higher version is refused.
const VERSION: i32 = 3;
const SCHEMA: &str = include_str!("schema.sql");
/// From version 1 to 2.
const UPGRADE_1: &str = "ALTER TABLE current ADD COLUMN repaired INTEGER NOT NULL DEFAULT 0; \
     CREATE TABLE losses (queue INTEGER NOT NULL, shard INTEGER NOT NULL, lost_to_ms INTEGER NOT NULL, \
     PRIMARY KEY (queue, shard)) WITHOUT ROWID, STRICT;";
/// From version 2 to 3.
const UPGRADE_2: &str = "ALTER TABLE current ADD COLUMN result BLOB;";

/// Cached pages: the writer touches the ends of many B-trees, a reader few pages of each.
const WRITER_CACHE_KIB: i32 = 64 * 1024;
const READER_CACHE_KIB: i32 = 8 * 1024;
/// Pages of the write-ahead log after which the writer itself copies it into the file: under steady writes the
/// checkpointer cannot reach the log's end.
const LOG_PAGES_MAX: i32 = 24_000;
/// The size to which the write-ahead log is truncated when it restarts.
const LOG_BYTES_KEPT: i64 = 64 * 1024 * 1024;
/// How long to wait where SQLite itself needs the file exclusively. Other processes are kept out by [`lock`].
const BUSY: Duration = Duration::from_secs(10);
/// Statements kept prepared; more than this crate has.
const STATEMENTS: usize = 128;

/// Keeps other processes out as long as it is held. It locks a separate file: closing a second handle of the database
/// would release SQLite's own locks.
pub(super) fn lock(path: &Path) -> Result<Flock<File>, EmbeddedError> {
    let lock_path = with_suffix(path, ".lock");
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

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The connection that writes. Creates the file and its tables if they are missing.
pub(super) fn open_writer(options: &EmbeddedOptions) -> Result<Connection, EmbeddedError> {
    let path = &options.path;
    let failed = |error: rusqlite::Error| match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => EmbeddedError::Foreign { path: path.clone() },
        _ => EmbeddedError::Sql { path: path.clone(), source: error },
    };
    let mut connection = Connection::open(path).map_err(failed)?;
    check(&connection, path)?;
    // Has no effect after the first table exists.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(failed)?;
    connection.pragma_update(None, "journal_mode", "WAL").map_err(failed)?;
    // The relay removes events from Redis once they are recorded, so a commit must survive a power loss.
    connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
    connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB).map_err(failed)?;
    connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES_MAX).map_err(failed)?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES_KEPT).map_err(failed)?;
    connection.busy_timeout(BUSY).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    create(&mut connection).map_err(failed)?;
    Ok(connection)
}

/// The connection that copies the log into the file.
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

/// Refuses the file of another program before anything is written to it.
fn check(connection: &Connection, path: &Path) -> Result<(), EmbeddedError> {
    let read_header = || -> rusqlite::Result<(i32, i32, i64)> {
        Ok((
            connection.pragma_query_value(None, "application_id", |row| row.get(0))?,
            connection.pragma_query_value(None, "user_version", |row| row.get(0))?,
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?,
        ))
    };
    let path = path.to_owned();
    match read_header() {
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
    match version {
        0 => {
            transaction.execute_batch(SCHEMA)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        }
        1 => {
            transaction.execute_batch(UPGRADE_1)?;
            transaction.execute_batch(UPGRADE_2)?;
        }
        2 => transaction.execute_batch(UPGRADE_2)?,
        _ => return transaction.commit(),
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of version 1 with one message. Its table already has the column of version 3, so that the second upgrade fails.
    fn file_that_upgrades_by_half() -> Connection {
        let file = Connection::open_in_memory().unwrap();
        file.execute_batch(SCHEMA).unwrap();
        file.execute_batch(
            "DROP TABLE losses; ALTER TABLE current DROP COLUMN repaired; PRAGMA user_version = 1; \
             INSERT INTO queues VALUES (1, 'q'); \
             INSERT INTO current VALUES (1, 2, 3, 0, 'm', 1, 0, 2, 2, 2, 0, 0, 0, 0, 0, '', '', '{}', NULL);",
        )
        .unwrap();
        file
    }

    fn version(file: &Connection) -> i32 {
        file.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
    }

    /// The tables and indexes as they were created, and the ids of the messages.
    fn content(file: &Connection) -> Vec<String> {
        let sql = "SELECT sql FROM sqlite_schema WHERE sql NOT NULL UNION ALL SELECT id FROM current";
        let mut select = file.prepare(sql).unwrap();
        let rows = select.query_map([], |row| row.get::<_, String>(0)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn o6_an_upgrade_that_ends_between_its_steps_changes_nothing() {
        let mut file = file_that_upgrades_by_half();
        let before = content(&file);
        let failed = create(&mut file).unwrap_err();
        assert!(failed.to_string().contains("duplicate column name: result"), "the first upgrade was made: {failed}");
        assert_eq!((version(&file), content(&file)), (1, before));

        file.execute_batch("ALTER TABLE current DROP COLUMN result").unwrap();
        create(&mut file).unwrap();
        assert_eq!(version(&file), VERSION);
        let upgraded: (String, i64, Option<Vec<u8>>) = file
            .query_row("SELECT id, repaired, result FROM current", [], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .unwrap();
        assert_eq!(upgraded, ("m".to_owned(), 0, None));
        let losses: i64 = file.query_row("SELECT count(*) FROM losses", [], |row| row.get(0)).unwrap();
        assert_eq!(losses, 0);
    }
}
