//! Who may use which connection: one writer at a time, readers that never wait for it, and the checkpointer beside it.

use super::schema::{self, open_checkpointer, open_reader};
use super::{EmbeddedError, EmbeddedOptions};
use crate::HistoryError;
use nix::fcntl::Flock;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};
use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Mutex as AsyncMutex, Semaphore};

/// Questions answered at the same time; more wait for their turn.
const READERS: usize = 4;
/// Pages in the log that make the checkpointer go.
const CHECKPOINT_PAGES: i64 = 4_000;
/// Its tries to come to the end of a log that grows meanwhile. Only from there the log begins anew.
const CHECKPOINT_TRIES: usize = 3;

/// Every connection to one file.
pub(super) struct Connections {
    // Closed before the writer: the last to go writes the log back into the file, which a reader may not.
    readers: Arc<Readers>,
    writer: Arc<AsyncMutex<Writer>>,
    checkpointer: Arc<Checkpointer>,
    turns: Arc<Semaphore>,
}

struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    /// Until the last connection is closed.
    _lock: Arc<Flock<File>>,
}

/// Writes the log back into the file while the writer goes on.
struct Checkpointer {
    connection: Mutex<Connection>,
    _lock: Arc<Flock<File>>,
}

/// What writes.
pub(super) struct Writer {
    connection: Connection,
    /// The numbers of queues, as committed.
    queues: HashMap<String, i64>,
    _lock: Arc<Flock<File>>,
}

/// One transaction that writes, and what is known of the file.
pub(super) struct Writing<'a> {
    pub(super) transaction: Transaction<'a>,
    /// The numbers of queues.
    pub(super) queues: &'a mut HashMap<String, i64>,
}

impl Connections {
    pub(super) fn open(options: &EmbeddedOptions) -> Result<Connections, EmbeddedError> {
        let lock = Arc::new(schema::lock(&options.path)?);
        let connection = schema::open_writer(options)?;
        let writer = Writer { connection, queues: HashMap::new(), _lock: lock.clone() };
        let checkpointer = open_checkpointer(&options.path)
            .map_err(|source| EmbeddedError::Sql { path: options.path.clone(), source })?;
        let checkpointer = Checkpointer { connection: Mutex::new(checkpointer), _lock: lock.clone() };
        let readers = Readers { path: options.path.clone(), idle: Mutex::default(), _lock: lock };
        Ok(Connections {
            writer: Arc::new(AsyncMutex::new(writer)),
            readers: Arc::new(readers),
            checkpointer: Arc::new(checkpointer),
            turns: Arc::new(Semaphore::new(READERS)),
        })
    }

    /// Runs `act` in one transaction; durable when this answers. Goes on to its end if the caller does not wait.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Writing) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, HistoryError> {
        let mut writer = self.writer.clone().lock_owned().await;
        let checkpointer = self.checkpointer.clone();
        blocking(move || {
            let written = writer.write(act);
            if written.is_err() {
                // What was numbered in a transaction that did not happen is not there.
                writer.queues.clear();
            }
            let is_long = log(&writer.connection, "NOOP").is_ok_and(|log| log.pages_left() >= CHECKPOINT_PAGES);
            drop(writer);
            if is_long {
                tokio::task::spawn_blocking(move || checkpointer.run());
            }
            written
        })
        .await
    }

    /// Writes the write-ahead log back into the file, as far as readers let it.
    pub(super) async fn checkpoint(&self) -> Result<(), HistoryError> {
        let writer = self.writer.clone().lock_owned().await;
        blocking(move || log(&writer.connection, "PASSIVE").map(|_| ())).await
    }

    /// Runs `act` on one snapshot of the file.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, HistoryError> {
        let turn = self.turns.clone().acquire_owned().await;
        let turn = turn.map_err(|_| HistoryError::Unavailable("the store is closed".to_owned()))?;
        let readers = self.readers.clone();
        let (asked, wanted) = Asked::new();
        let answer = blocking(move || {
            let _turn = turn;
            readers.read(&wanted, act)
        })
        .await;
        drop(asked);
        answer
    }
}

impl Checkpointer {
    fn run(&self) {
        // One that runs already sees to it.
        let Ok(connection) = self.connection.try_lock() else { return };
        for _ in 0..CHECKPOINT_TRIES {
            match log(&connection, "PASSIVE") {
                Ok(log) if log.pages_left() > 0 => {}
                Ok(_) => return,
                Err(error) => return tracing::warn!(%error, "the history's log cannot be written back"),
            }
        }
    }
}

/// The write-ahead log: its pages, and how many of them are in the file.
struct Log {
    pages: i64,
    written_back: i64,
}

impl Log {
    fn pages_left(&self) -> i64 {
        self.pages - self.written_back
    }
}

/// Writes the log back, or with "NOOP" only looks at it.
fn log(connection: &Connection, mode: &str) -> rusqlite::Result<Log> {
    connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
        Ok(Log { pages: row.get(1)?, written_back: row.get(2)? })
    })
}

impl Writer {
    fn write<T>(&mut self, act: impl FnOnce(&mut Writing) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut writing = Writing { transaction, queues: &mut self.queues };
        let answer = act(&mut writing)?;
        writing.transaction.commit()?;
        Ok(answer)
    }
}

impl Readers {
    fn read<T>(
        &self,
        wanted: &Arc<AtomicBool>,
        act: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let pooled = idle().pop();
        let mut connection = pooled.map_or_else(|| open_reader(&self.path), Ok)?;
        let wanted = wanted.clone();
        connection.progress_handler(STEPS_PER_LOOK, Some(move || !wanted.load(Ordering::Relaxed)))?;
        let snapshot = connection.transaction()?;
        let answer = act(&snapshot)?;
        drop(snapshot);
        connection.progress_handler(0, None::<fn() -> bool>)?;
        // One that failed is not used again.
        idle().push(connection);
        Ok(answer)
    }
}

/// Steps of SQLite's machine between two looks at whether the answer is still wanted.
const STEPS_PER_LOOK: i32 = 10_000;

/// Whoever asked. Dropped, with or without the answer, it ends the work on it: a question that nobody waits for would
/// keep a reader from others, and the log from being written back.
struct Asked(Arc<AtomicBool>);

impl Asked {
    fn new() -> (Asked, Arc<AtomicBool>) {
        let wanted = Arc::new(AtomicBool::new(true));
        (Asked(wanted.clone()), wanted)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> rusqlite::Result<T> + Send + 'static,
) -> Result<T, HistoryError> {
    match tokio::task::spawn_blocking(act).await {
        Ok(answer) => answer.map_err(failed),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(HistoryError::Unavailable("the program stops".to_owned())),
    }
}

fn failed(error: rusqlite::Error) -> HistoryError {
    use ErrorCode::*;
    match error.sqlite_error_code() {
        // A full disk may be emptied; a file that cannot be read now may be there later.
        Some(DatabaseBusy | DatabaseLocked | DiskFull | OutOfMemory | SystemIoFailure | CannotOpen) => {
            HistoryError::Unavailable(error.to_string())
        }
        _ => HistoryError::Failed(error.to_string()),
    }
}
