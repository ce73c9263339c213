//! Sums by time window, from the first event in a window until a rollup has settled it.

use crate::names::CounterName;
use crate::refusal::Refusal;
use tallystone_lua::counter::WINDOW_MS;

/// The sums of one counter's events in one time window, in one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its number: it begins at `number * WINDOW_MS` (Unix ms).
    pub number: u64,
    /// The sum of its adds. Those that a clear of the window had removed when either came are left out.
    pub sum: i64,
    /// The times of the first and the last of these adds, in Unix ms; `None`: there is none.
    pub adds_ms: Option<(u64, u64)>,
    /// The time of its last clear, in Unix ms; `None`: it has no clear.
    pub cleared_ms: Option<u64>,
}

impl Window {
    /// When it begins, in Unix ms.
    pub fn begin_ms(&self) -> u64 {
        self.number * WINDOW_MS
    }
}

/// What no rollup has settled of a counter, in one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// The time of its latest event, in Unix ms; 0: none.
    pub last_write_ms: u64,
    /// The direction in which adds are refused.
    pub closed: Closed,
    /// The windows with events, in no order.
    pub windows: Vec<Window>,
}

/// Which adds a shard refuses because the counter nears the end of its range (N2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Closed {
    /// None.
    #[default]
    No,
    /// Those above zero.
    Up,
    /// Those below zero.
    Down,
}

/// What is pending of a counter, and up to what time that is final.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// No event before this time can be appended any more, in any shard of the counter. Unix ms, a window's bound.
    pub sealed_to_ms: u64,
    /// By shard.
    pub pending: Vec<(u16, Pending)>,
    /// `expire_after_ms` of the revision that the shards followed when they were sealed.
    pub expire_after_ms: u64,
    /// Whether the namespace has regions: then checkpoints keep the time of the last clear (N12).
    pub has_regions: bool,
}

/// What a committed checkpoint implies for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The counter.
    pub counter: CounterName,
    /// The checkpoint holds all events before this time (Unix ms, a window's bound).
    pub to_ms: u64,
    /// The direction that its count requires to be closed.
    pub closed: Closed,
    /// The time of the latest event that any rollup has seen (Unix ms): it decides whether the counter stays in circulation.
    pub last_write_ms: u64,
    /// The counter was deleted and not written since: it leaves circulation.
    pub is_deleted: bool,
    /// Shards in which nothing of it was pending when they were sealed: they need not be settled. A counter that is closed is
    /// settled in every shard, and each counter in its home shard.
    pub idle_shards: Vec<u16>,
}

impl Settlement {
    /// How long the counter has had no event, at the time to which it is settled.
    pub(crate) fn idle_ms(&self) -> u64 {
        self.to_ms.saturating_sub(self.last_write_ms)
    }

    /// Whether nothing is to be settled in this shard, if it is not the counter's home.
    pub(crate) fn skips(&self, shard: u16) -> bool {
        self.closed == Closed::No && self.idle_shards.contains(&shard)
    }
}

/// What a rollup and an accurate read need of the log. A call on several counters replies for each, in their order, or
/// fails as a whole.
pub trait RollupLog: Send + Sync {
    /// What is pending of each counter, by shard. It follows no revision and changes nothing.
    fn pending(
        &self,
        counters: &[CounterName],
    ) -> impl Future<Output = Result<Vec<Vec<(u16, Pending)>>, Refusal>> + Send;

    /// Seals the shards of these counters up to the last window's bound at or before `now - accept_limit_ms -`
    /// [`SKEW_MS`](crate::namespace::SKEW_MS), and returns what is then pending (N7). A seal never goes back.
    fn seal(&self, counters: &[CounterName]) -> impl Future<Output = Result<Vec<Sealed>, Refusal>> + Send;

    /// The sum of a counter's adds after `after_ms` in one window of one shard. The window must be sealed: the sum of an
    /// open one can still change.
    fn sum_after(
        &self,
        counter: &CounterName,
        shard: u16,
        window: u64,
        after_ms: u64,
    ) -> impl Future<Output = Result<i64, Refusal>> + Send;

    /// Removes the windows that a checkpoint has counted, and closes or opens the counter as its count requires, unless a
    /// rollup to a later time has decided that already. A counter with no window left is no longer dirty, unless it
    /// stays in circulation (N10) or was closed just now.
    fn settle(&self, settlements: &[Settlement]) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// Refuses adds in one direction, in all shards of the counter, until a rollup to this time or a later one decides
    /// otherwise. It marks the counter dirty, since the caller may die before it settles.
    fn close(&self, closing: &Settlement) -> impl Future<Output = Result<(), Refusal>> + Send;
}
