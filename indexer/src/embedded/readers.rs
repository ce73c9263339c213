//! The connections that read: a pool, and the end of queries whose caller has gone.

use super::schema::open_reader;
use nix::fcntl::Flock;
use rusqlite::Connection;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Steps of SQLite's virtual machine between two checks whether the caller still waits.
const STEPS_PER_CHECK: i32 = 10_000;

/// Idle connections, opened as needed.
pub(super) struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    /// Held until the last connection is closed.
    _lock: Arc<Flock<File>>,
}

impl Readers {
    pub(super) fn new(path: PathBuf, lock: Arc<Flock<File>>) -> Readers {
        Readers { path, idle: Mutex::default(), _lock: lock }
    }

    /// Runs `query` on one snapshot. SQLite interrupts it once `is_wanted` is false. Blocks.
    pub(super) fn read<T>(
        &self,
        is_wanted: &Arc<AtomicBool>,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let pooled = idle().pop();
        let mut connection = pooled.map_or_else(|| open_reader(&self.path), Ok)?;
        let is_wanted = is_wanted.clone();
        connection.progress_handler(STEPS_PER_CHECK, Some(move || !is_wanted.load(Ordering::Relaxed)))?;
        let snapshot = connection.transaction()?;
        let result = query(&snapshot)?;
        drop(snapshot);
        connection.progress_handler(0, None::<fn() -> bool>)?;
        // A connection whose query failed is closed instead.
        idle().push(connection);
        Ok(result)
    }
}

/// Cancels a query when it is dropped, with or without the result. A query that continues without a caller would occupy
/// a reader, and its snapshot would keep the log from being copied.
pub(super) struct CancelOnDrop(Arc<AtomicBool>);

impl CancelOnDrop {
    /// The guard, and the flag for [`Readers::read`].
    pub(super) fn new() -> (CancelOnDrop, Arc<AtomicBool>) {
        let is_wanted = Arc::new(AtomicBool::new(true));
        (CancelOnDrop(is_wanted.clone()), is_wanted)
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
