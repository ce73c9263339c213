//! Why the file of an embedded history cannot be opened.

use std::path::PathBuf;

/// Why the file cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// The folder cannot be created, or the lock file not opened.
    #[error("cannot use {}: {source}", path.display())]
    Unusable {
        /// The folder's or lock's path.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Another process has opened it.
    #[error("the history {} is in use by another process; stop that process first, or use another file", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It is another program's file.
    #[error("{} is not a history file of Tallystone; use another file, or move this one away", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A later release wrote it.
    #[error(
        "the history {} has layout {version}, and this program knows layouts up to {known}; \
         use the newer program, or move the file away", path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its layout.
        version: i32,
        /// The newest layout that this program knows.
        known: i32,
    },
    /// SQLite returned an error.
    #[error("cannot open the history {}: {source}", path.display())]
    Sql {
        /// The file.
        path: PathBuf,
        /// SQLite's error.
        source: rusqlite::Error,
    },
}
