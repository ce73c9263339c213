//! What is known of a store: whether it answers, and whether it is what it was (X7).

use crate::LinkError;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// Why a store is not what it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataLoss {
    /// The mark is gone.
    #[error("its identity mark is gone: its data was deleted, or it started without it")]
    Absent,
    /// The mark is another one.
    #[error("it has the identity mark of another store, {found} instead of {expected}")]
    Foreign {
        /// The mark that it had.
        expected: String,
        /// The mark that it has.
        found: String,
    },
    /// The mark's beat has gone back.
    #[error("its last writes are gone: it was started from an older copy of its data")]
    Older,
    /// Another process has noticed it.
    #[error("another server has noticed that its data is not what it was")]
    Noticed,
}

/// What the last probe of a store found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreStatus {
    /// It answers, and is what it was.
    Serving,
    /// It does not answer.
    Unavailable,
    /// It is not what it was: every call is refused.
    Lost(DataLoss),
}

/// What the links to a store and its [`Identity`](crate::Identity) know of each other.
pub struct StoreState {
    pub(crate) status: watch::Sender<StoreStatus>,
    /// Whether a link has written since the last beat.
    wrote: AtomicBool,
}

impl StoreState {
    pub(crate) fn new() -> StoreState {
        StoreState { status: watch::Sender::new(StoreStatus::Serving), wrote: AtomicBool::new(false) }
    }

    pub(crate) fn wrote(&self) {
        self.wrote.store(true, Ordering::Relaxed);
    }

    /// Whether a link has written since the last call.
    pub(crate) fn take_wrote(&self) -> bool {
        self.wrote.swap(false, Ordering::Relaxed)
    }

    /// Fails if the store is not what it was.
    pub(crate) fn check(&self) -> Result<(), LinkError> {
        match &*self.status.borrow() {
            StoreStatus::Serving | StoreStatus::Unavailable => Ok(()),
            StoreStatus::Lost(loss) => Err(LinkError::data_loss(loss.to_string())),
        }
    }
}
