//! The event log: what was added, when, and by which token (N3, N5). A store for it needs three things only: to take an
//! event once, to say up to when no more can come, and to tell and forget sums (seed 000, "event log").

use crate::names::{CounterName, Token};
use crate::refusal::Refusal;
use std::ops::Range;
pub use tallystone_lua::counter::WINDOW_MS;

/// What an event does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds, also less than nothing.
    Add(i64),
    /// All that happened up to its time is gone.
    Clear,
}

/// An event. The same counter, token and time are the same event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// Of which counter.
    pub counter: CounterName,
    /// Which one.
    pub token: Token,
    /// When it happened, in Unix ms; `None`: when it is counted, by the store's clock.
    pub time_ms: Option<u64>,
    /// What it does.
    pub change: Change,
}

/// An event is in the log, since now or since an earlier call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// When it happened.
    pub time_ms: u64,
    /// It was there already.
    pub duplicate: bool,
}

/// The sum of the adds of one counter in one window of time, in one shard of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// It begins at this times [`WINDOW_MS`].
    pub number: u64,
    /// Of its adds.
    pub sum: i64,
    /// The times of the first and the last add; `None`: it has none.
    pub adds_ms: Option<(u64, u64)>,
    /// The time of the last clear; `None`: it has none.
    pub cleared_ms: Option<u64>,
}

impl Window {
    /// When it begins.
    pub fn begin_ms(&self) -> u64 {
        self.number * WINDOW_MS
    }
}

/// What of a counter no rollup has settled, in one shard of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// The time of the latest event that it has seen.
    pub last_write_ms: u64,
    /// In which direction nothing more is taken.
    pub closed: Closed,
    /// In no order.
    pub windows: Vec<Window>,
}

/// Which adds are refused because the counter nears the end of its range (N2).
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

/// What is pending of a counter, of which a part is sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// No event before this time can come any more; a multiple of [`WINDOW_MS`].
    pub sealed_to_ms: u64,
    /// By shard of the log.
    pub pending: Vec<(u16, Pending)>,
}

/// What a checkpoint has of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Of which counter.
    pub counter: CounterName,
    /// All that happened before this time.
    pub to_ms: u64,
    /// What its count asks to be closed.
    pub closed: Closed,
}

/// An event as it stands in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it happened.
    pub time_ms: u64,
    /// Which one.
    pub token: Token,
    /// What it did.
    pub change: Change,
}

/// Some events of one counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventScan {
    /// All that there are before the window `next`, in the order of their times.
    pub events: Vec<Event>,
    /// The window to go on with.
    pub next_window: u64,
}

/// The event log of one namespace. What takes several counters answers for each, in their order, or for none.
pub trait EventLog: Send + Sync {
    /// Takes events; of each, whether it counts. All at once or one by one: an event is whole or not there.
    fn append(&self, events: &[NewEvent]) -> impl Future<Output = Vec<Result<Appended, Refusal>>> + Send;

    /// What is pending of each counter, as it stands in each shard.
    fn pending(
        &self,
        counters: &[CounterName],
    ) -> impl Future<Output = Result<Vec<Vec<(u16, Pending)>>, Refusal>> + Send;

    /// The same; and from now on refuses what is older than the accept limit and the skew allow, in all their shards.
    fn seal(&self, counters: &[CounterName]) -> impl Future<Output = Result<Vec<Sealed>, Refusal>> + Send;

    /// The sum of a counter's adds in one window of a shard that happened after a time: of a sealed window.
    fn sum_after(
        &self,
        counter: &CounterName,
        shard: u16,
        window: u64,
        after_ms: u64,
    ) -> impl Future<Output = Result<i64, Refusal>> + Send;

    /// What checkpoints have is pending no more. What their counts ask to be closed is closed from now on, and all else
    /// open, unless a later rollup has closed it.
    fn settle(&self, settled: &[Settled]) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// Takes nothing more in this direction, in all shards of the counter, until a rollup to this time or a later one says
    /// otherwise.
    fn close(&self, closing: &Settled) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// Counters of one shard whose rollup is due, at most so many, and when the next one is; they are not due again for
    /// `hold_ms`, unless a rollup says otherwise (N9).
    fn due(&self, shard: u16, limit: usize, hold_ms: u64) -> impl Future<Output = Result<Due, Refusal>> + Send;

    /// Somebody reads these counters: what of them is pending is due as soon as it can be rolled up, and those with
    /// `true` are due at once though nothing is (N11). Whether any of them is due sooner now.
    fn touch(&self, touched: &[(CounterName, bool)]) -> impl Future<Output = Result<bool, Refusal>> + Send;

    /// A counter's events of these windows (N12): of all of them, or of the first of them as soon as there are `enough`
    /// or it has been much to look at.
    fn events(
        &self,
        counter: &CounterName,
        windows: Range<u64>,
        enough: usize,
    ) -> impl Future<Output = Result<EventScan, Refusal>> + Send;

    /// Drops the slices of a shard that are past `delete_after` and rolled up; how many they were.
    fn prune(&self, shard: u16) -> impl Future<Output = Result<u64, Refusal>> + Send;

    /// What time it is by the log's clock, as far as is known: never ahead of it.
    fn now_ms(&self) -> u64;

    /// How many shards there are.
    fn shards(&self) -> u16;
}

/// Counters whose rollup is due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// The longest waiting first, each with the time since when it is due.
    pub counters: Vec<(CounterName, u64)>,
    /// When the next one is.
    pub next_ms: Option<u64>,
    /// By the clock that this goes by.
    pub now_ms: u64,
    /// How many counters of this shard wait, due or not.
    pub dirty: u64,
}
