//! What local counters report.

use std::io;
use std::path::{Path, PathBuf};

/// Why local counters could not do something. An error never changes a count.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// Another process, or another [`LocalCounters`](super::LocalCounters) of this one, has the folder open.
    #[error("the folder {} is in use by another process", folder.display())]
    Locked {
        /// The folder.
        folder: PathBuf,
    },
    /// A file is not what this library wrote. Nothing is counted from the folder, because the numbers could be wrong.
    #[error("{} is damaged: {what}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A call of the file system failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What failed.
        source: io::Error,
    },
    /// The folder has as many counters as it may have: [`slots_max`](super::LocalOptions::slots_max).
    #[error("there is no room for another counter: the folder has {slots_max}")]
    Full {
        /// The bound.
        slots_max: u32,
    },
    /// A namespace or a counter has a name that the service does not accept, or an option is out of its range.
    #[error("{what}")]
    Invalid {
        /// What is wrong.
        what: String,
    },
    /// Something is not pushed yet. It is safe in the folder, and is pushed after the next
    /// [`open`](super::LocalCounters::open).
    #[error("not everything is pushed: {what}")]
    NotPushed {
        /// What failed last.
        what: String,
    },
    /// A pull failed; the values are those of before.
    #[error("not everything is pulled: {what}")]
    NotPulled {
        /// What failed last.
        what: String,
    },
}

impl LocalError {
    pub(super) fn damaged(file: &Path, what: impl Into<String>) -> LocalError {
        LocalError::Damaged { file: file.to_owned(), what: what.into() }
    }

    pub(super) fn invalid(what: impl Into<String>) -> LocalError {
        LocalError::Invalid { what: what.into() }
    }
}

/// Names what was tried when a call of the file system failed.
pub(super) trait IoContext<T> {
    fn when(self, what: &str, file: &Path) -> Result<T, LocalError>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn when(self, what: &str, file: &Path) -> Result<T, LocalError> {
        self.map_err(|source| LocalError::Io { what: format!("cannot {what} {}", file.display()), source })
    }
}
