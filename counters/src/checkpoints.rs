//! The rollup store: for each counter its last count and the time to which that is exact, as one value (N7).

use crate::names::CounterName;
use crate::refusal::Refusal;
#[cfg(doc)]
use tallystone_lua::counter::FIRST_AGE_MS_MAX;
use tallystone_model::Applied;

/// The result of the last rollup of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// The count of all events before `exact_to_ms`.
    pub count: i64,
    /// The time to which the count is exact, in Unix ms; 0: no rollup has run yet.
    pub exact_to_ms: u64,
    /// The time of the latest event that any rollup has seen, in Unix ms; it may be after `exact_to_ms`.
    pub last_write_ms: u64,
    /// The lease under which it was written.
    pub lease: LeaseOrder,
    /// The counter was deleted (N14), and no add since has been rolled up: `count` is 0, and `last_write_ms` is the time up
    /// to which its events are deleted.
    pub is_deleted: bool,
    /// The recounts of the counter (N12).
    pub epoch: Epoch,
    /// The time of the last clear or deletion that the count follows, of this region or another one (N12), in Unix ms; 0: none
    /// since the namespace has regions. It stays if the regions are removed.
    pub cleared_ms: u64,
}

/// What the recounts of a counter have made of its count (N12). The default: it was never recounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    /// The number of recounts. A rollup that began in an earlier epoch does not commit.
    pub number: u32,
    /// The sum of the adjustments since the last clear: the count is the sum of the events and this.
    pub adjusted: i64,
}

impl Checkpoint {
    /// The time that answers give for `exact_to_ms`: a deleted counter answers like one that was never written.
    pub fn shown_exact_to_ms(&self) -> u64 {
        if self.is_deleted { 0 } else { self.exact_to_ms }
    }
}

/// Orders the leases of one counter's rollup: the time rises from message to message of the rollup queue, the fencing
/// token from lease to lease of one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseOrder {
    /// When the lease was granted, by the queue's clock, in Unix ms.
    pub leased_at_ms: u64,
    /// The lease's fencing token.
    pub fencing_token: u64,
}

/// The outcome of a checkpoint update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// The new checkpoint stands.
    Done,
    /// Nothing has changed: another rollup committed first, or a later lease has written (N8).
    Lost,
}

/// A compare-and-set of one checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointUpdate {
    /// The counter.
    pub counter: CounterName,
    /// The checkpoint that the rollup started from.
    pub before: Checkpoint,
    /// The new one.
    pub after: Checkpoint,
}

/// The rollup store of one namespace. Both calls reply for each counter, in their order, or fail as a whole.
pub trait Checkpoints: Send + Sync {
    /// The counters' checkpoints; the default for a counter that was never rolled up.
    fn read(&self, counters: &[CounterName]) -> impl Future<Output = Result<Vec<Checkpoint>, Refusal>> + Send;

    /// Replaces each checkpoint whose `exact_to_ms`, `is_deleted`, `epoch.number` and `cleared_ms` are still those of `before`, unless a
    /// later lease than `after.lease` has written it. A first checkpoint must not be exact to a time further behind the store's than
    /// [`FIRST_AGE_MS_MAX`]. A counter does not expire while its home shard has pending events of it. Each update is atomic.
    ///
    /// # Errors
    /// [`Refusal::Stale`]: a home shard follows another revision, which may have other regions; its updates change nothing.
    fn commit(&self, updates: &[CheckpointUpdate]) -> impl Future<Output = Result<Vec<Commit>, Refusal>> + Send;
}

/// The refusal of a deletion whose clear is ahead of the store's clock.
pub(crate) fn deletion_ahead() -> Refusal {
    let why = "its clock was set back to before the time of the deletion".to_owned();
    Refusal::Unavailable { applied: Applied::Unknown, why }
}

/// The deletion of counters (N14): what the rollup store has of a deleted counter.
///
/// A deletion is a clear, which the caller has appended before. A counter's mark outlives every rollup that began before the
/// deletion, and every event that was listed before.
pub trait Deletions: Send + Sync {
    /// The counter has no count from now on: its checkpoint is that of a deleted counter, exact to the window of its clear.
    /// Nothing changes if a rollup has counted the clear already and something was added after it. May be repeated.
    ///
    /// # Errors
    /// [`Refusal::Unavailable`]: the clear is further ahead of the store's clock than a new event may be, because the clock
    /// was set back. [`Refusal::Stale`]: the home shard follows another revision, and nothing changes.
    fn delete(&self, counter: &CounterName, cleared_ms: u64) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// Up to when the counter's events are deleted, in Unix ms; `None`: they are not, or retention has dropped them.
    fn deleted_to(&self, counter: &CounterName) -> impl Future<Output = Result<Option<u64>, Refusal>> + Send;

    /// The first time of which no event is deleted, in Unix ms.
    fn undeleted_from(&self, counter: &CounterName) -> impl Future<Output = Result<u64, Refusal>> + Send
    where
        Self: Sync,
    {
        async { Ok(self.deleted_to(counter).await?.map_or(0, |deleted_ms| deleted_ms + 1)) }
    }
}
