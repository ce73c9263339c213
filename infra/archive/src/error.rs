//! Why the archive did not do what was requested.

use object_store::Error;
use parquet::errors::ParquetError;

/// The failure of a call.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The object store does not do what it should. The call may be repeated.
    #[error("{why}")]
    Unavailable {
        /// The reason.
        why: String,
    },
    /// An object has gone since its slice was listed: a merge has replaced it, or it is past its retention. The slice, read again,
    /// has what was in it, or has nothing any more.
    #[error("{path} has gone")]
    Gone {
        /// Its path.
        path: String,
    },
    /// The folder of the namespace has no mark: the archive never began, or this is another one.
    #[error("it has no mark of {namespace:?}: is it mounted, and the right one?")]
    NoMark {
        /// The namespace.
        namespace: String,
    },
    /// An object is not what was written.
    #[error("{path} is damaged: {why}")]
    Damaged {
        /// Its path.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// What the caller gave cannot be archived, or the address is none.
    #[error("{why}")]
    Invalid {
        /// The reason.
        why: String,
    },
}

impl ArchiveError {
    pub(crate) fn invalid(why: impl Into<String>) -> ArchiveError {
        ArchiveError::Invalid { why: why.into() }
    }

    /// No object of the list has what some object must have.
    pub(crate) fn uncovered(shard: u16, time_ms: u64) -> ArchiveError {
        let why = format!(
            "no object in the list covers shard {shard} at {time_ms}: the list is out of date, or an object is missing"
        );
        ArchiveError::Unavailable { why }
    }

    pub(crate) fn damaged(path: &str, why: impl Into<String>) -> ArchiveError {
        ArchiveError::Damaged { path: path.to_owned(), why: why.into() }
    }
}

impl From<Error> for ArchiveError {
    fn from(error: Error) -> ArchiveError {
        match error {
            Error::NotFound { path, .. } => ArchiveError::Gone { path },
            error => ArchiveError::Unavailable { why: error.to_string() },
        }
    }
}

impl From<tokio::task::JoinError> for ArchiveError {
    fn from(error: tokio::task::JoinError) -> ArchiveError {
        ArchiveError::Unavailable { why: error.to_string() }
    }
}

impl From<ParquetError> for ArchiveError {
    fn from(error: ParquetError) -> ArchiveError {
        ArchiveError::Damaged { path: "an object".to_owned(), why: error.to_string() }
    }
}
