//! Every connection to one file: one writer at a time, readers that never wait for it, and the checkpointer.

use super::checkpointer::{Checkpointer, copy_log, is_log_long};
use super::error::EmbeddedError;
use super::options::EmbeddedOptions;
use super::readers::{CancelOnDrop, Readers};
use super::schema;
use crate::HistoryError;
use nix::fcntl::Flock;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};
use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};

/// Queries that run at the same time; more wait.
const READERS: usize = 4;

/// Every connection to one file.
pub(super) struct Connections {
    // Closed before the writer: the last connection to close copies the log into the file, which a reader may not do.
    readers: Arc<Readers>,
    writer: Arc<AsyncMutex<Writer>>,
    checkpointer: Arc<Checkpointer>,
    read_permits: Arc<Semaphore>,
}

/// The connection that writes.
struct Writer {
    connection: Connection,
    /// The numbers of queues, as committed.
    queues: HashMap<String, i64>,
    _lock: Arc<Flock<File>>,
}

/// A transaction that writes.
pub(super) struct WriteTransaction<'a> {
    pub(super) transaction: Transaction<'a>,
    /// The numbers of queues, cached. Cleared if the transaction fails.
    pub(super) queues: &'a mut HashMap<String, i64>,
}

impl Connections {
    pub(super) fn open(options: &EmbeddedOptions) -> Result<Connections, EmbeddedError> {
        let lock = Arc::new(schema::lock(&options.path)?);
        let connection = schema::open_writer(options)?;
        let writer = Writer { connection, queues: HashMap::new(), _lock: lock.clone() };
        let checkpointer = Checkpointer::open(&options.path, lock.clone())?;
        let readers = Readers::new(options.path.clone(), lock);
        Ok(Connections {
            writer: Arc::new(AsyncMutex::new(writer)),
            readers: Arc::new(readers),
            checkpointer: Arc::new(checkpointer),
            read_permits: Arc::new(Semaphore::new(READERS)),
        })
    }

    /// Runs `write` in one transaction, which is durable when this returns. If the caller stops waiting, the
    /// transaction still runs to its end.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        write: impl FnOnce(&mut WriteTransaction) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, HistoryError> {
        let mut writer = self.writer.clone().lock_owned().await;
        let checkpointer = self.checkpointer.clone();
        blocking(move || {
            let written = writer.write(write);
            if written.is_err() {
                // The numbers that the failed transaction gave do not exist.
                writer.queues.clear();
            }
            let is_log_long = is_log_long(&writer.connection);
            drop(writer);
            if is_log_long {
                tokio::task::spawn_blocking(move || checkpointer.run());
            }
            written
        })
        .await
    }

    /// Copies the write-ahead log into the file, as far as readers allow.
    pub(super) async fn checkpoint(&self) -> Result<(), HistoryError> {
        let writer = self.writer.clone().lock_owned().await;
        blocking(move || copy_log(&writer.connection)).await
    }

    /// Runs `query` on one snapshot of the file. If the caller stops waiting, the query ends.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, HistoryError> {
        let permit = self.read_permits.clone().acquire_owned().await;
        let permit = permit.map_err(|_| HistoryError::Unavailable("the store is closed".to_owned()))?;
        let readers = self.readers.clone();
        let (cancel_on_drop, is_wanted) = CancelOnDrop::new();
        let result = blocking(move || {
            let _permit = permit;
            readers.read(&is_wanted, query)
        })
        .await;
        drop(cancel_on_drop);
        result
    }
}

impl Writer {
    fn write<T>(&mut self, write: impl FnOnce(&mut WriteTransaction) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut open = WriteTransaction { transaction, queues: &mut self.queues };
        let result = write(&mut open)?;
        open.transaction.commit()?;
        Ok(result)
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> rusqlite::Result<T> + Send + 'static,
) -> Result<T, HistoryError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(history_error),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(HistoryError::Unavailable("the program is shutting down".to_owned())),
    }
}

fn history_error(error: rusqlite::Error) -> HistoryError {
    use ErrorCode::*;
    match error.sqlite_error_code() {
        // An operator can free a full disk, and a file that cannot be read now may be readable later.
        Some(DatabaseBusy | DatabaseLocked | DiskFull | OutOfMemory | SystemIoFailure | CannotOpen) => {
            HistoryError::Unavailable(error.to_string())
        }
        _ => HistoryError::Failed(error.to_string()),
    }
}
