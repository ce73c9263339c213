//! The rollup store: of each counter its last count and the time that it is exact to, as one value (N7).

use crate::names::CounterName;
use crate::refusal::Refusal;

/// What a rollup came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Of all events before `exact_to_ms`.
    pub count: i64,
    /// The count is exact to this time; 0: there was no rollup yet.
    pub exact_to_ms: u64,
    /// The time of the latest event that any rollup has seen; last write wins.
    pub last_write_ms: u64,
    /// Under which lease it was written.
    pub lease: LeaseOrder,
}

/// Which of two leases of one counter's rollup is the later: the fencing token rises from lease to lease of a message, and
/// the time from message to message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseOrder {
    /// By the queue's clock.
    pub leased_at_ms: u64,
    /// Of the lease.
    pub fencing_token: u64,
}

/// What became of a new checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// It stands.
    Done,
    /// Another rollup was faster, or holds the lease by now: nothing has changed (N8).
    Lost,
}

/// A new checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointUpdate {
    /// Of which counter.
    pub counter: CounterName,
    /// The one that it was reckoned from.
    pub before: Checkpoint,
    /// The new one.
    pub after: Checkpoint,
}

/// The rollup store of one namespace. Both answer for each counter, in their order, or for none.
pub trait Checkpoints: Send + Sync {
    /// The counters' checkpoints; one that was never rolled up has the default.
    fn read(&self, counters: &[CounterName]) -> impl Future<Output = Result<Vec<Checkpoint>, Refusal>> + Send;

    /// Puts each `after` in the place of a checkpoint that is exact to `before.exact_to_ms`, unless that was written
    /// under a later lease.
    fn commit(&self, updates: &[CheckpointUpdate]) -> impl Future<Output = Result<Vec<Commit>, Refusal>> + Send;
}
