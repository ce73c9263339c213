//! The file of an embedded history, and how much of it is kept.

use std::path::PathBuf;

const RETENTION_MS: u64 = 7 * 86_400_000;
const MAX_BYTES: u64 = 4 * 1024 * 1024 * 1024;

/// The file, and how much of the history is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddedOptions {
    /// The file. SQLite keeps its write-ahead log next to it (`-wal`, `-shm`), and the store a `.lock`.
    pub path: PathBuf,
    /// Transitions older than this are removed, and messages that have been gone for longer. The default is 7 days.
    pub retention_ms: u64,
    /// Other retentions, each for the queues whose names begin with its prefix; the longest prefix applies.
    pub retentions: Vec<(String, u64)>,
    /// The largest size of the file in bytes. Near it the oldest rows are removed first. The default is 4 GiB. One
    /// call may exceed it by the size of its events. The write-ahead log takes up to 100 MiB more, and more than
    /// that only while a single query takes long.
    pub max_bytes: u64,
}

impl EmbeddedOptions {
    /// The defaults, with this file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        EmbeddedOptions { path: path.into(), retention_ms: RETENTION_MS, retentions: Vec::new(), max_bytes: MAX_BYTES }
    }
}
