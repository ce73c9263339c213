//! Events: taken once each, read back in the order of their times, dropped when their retention is over.

use super::labels::Labels;
use crate::names::{CounterName, Token};
use crate::refusal::Refusal;
use std::ops::Range;
use tallystone_model::Applied;

/// What an event does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds a delta, which may be negative or zero.
    Add(i64),
    /// Sets the counter to zero: cancels every add whose time is not after this event's.
    Clear,
}

/// What a conditional add requires of the count that it makes (N18). The default requires nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// An add below zero must not make the count less than this.
    pub min: Option<i64>,
    /// An add above zero must not make the count more than this.
    pub max: Option<i64>,
}

impl Bounds {
    /// Whether it requires nothing.
    pub(crate) fn are_none(&self) -> bool {
        *self == Bounds::default()
    }
}

/// An event to append. Counter, token and time identify it: two with all three equal are the same event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// The counter.
    pub counter: CounterName,
    /// The idempotency token.
    pub token: Token,
    /// When it happened, in Unix ms; `None`: when the store counts it, behind every fence of the shard.
    pub time_ms: Option<u64>,
    /// What it does.
    pub change: Change,
    /// Of an add. They are no part of the event: only an add that is not in the log yet is held against them.
    pub bounds: Bounds,
    /// Of an add: a clear's are ignored.
    pub labels: Labels,
}

impl NewEvent {
    /// The labels that it has in the log.
    pub(crate) fn kept_labels(&self) -> Labels {
        if self.change == Change::Clear { Labels::default() } else { self.labels.clone() }
    }
}

/// The event is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// When it happened, in Unix ms.
    pub time_ms: u64,
    /// An earlier call or item had appended it already; it has counted once.
    pub duplicate: bool,
}

/// Why the log has not appended an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unlogged {
    /// It is refused.
    Refused(Refusal),
    /// It may have counted and left the log since: [`Events::find_archived`] answers it.
    Archived,
}

impl From<Refusal> for Unlogged {
    fn from(refusal: Refusal) -> Unlogged {
        Unlogged::Refused(refusal)
    }
}

/// An event as it stands in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it happened, in Unix ms.
    pub time_ms: u64,
    /// The idempotency token.
    pub token: Token,
    /// What it did.
    pub change: Change,
    /// Of an add; a clear has none.
    pub labels: Labels,
}

/// One part of a read of a counter's events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventScan {
    /// All events of the windows that were read, in the order of time and token.
    pub events: Vec<Event>,
    /// The first window that was not read.
    pub next_window: u64,
}

/// What the service needs of the log: append, read back, order, drop.
pub trait Events: Send + Sync {
    /// Appends events; a result for each, in their order. Each item is atomic, the call is not: an event is in the log
    /// whole, or not at all. A shard checks in this order:
    ///
    /// | condition (`now`: the store's time) | result |
    /// |---|---|
    /// | it has [`Bounds`], and the namespace allows none | [`Refusal::Invalid`] |
    /// | the delta alone exceeds what a shard may hold pending | [`Refusal::Overflow`] |
    /// | before `now - close_after_ms`, or before what [`prune`](Events::prune) has dropped | [`Refusal::TokenExpired`] |
    /// | in the log with the same change and labels | `Ok`, `duplicate` |
    /// | in the log with another change or other labels | [`Refusal::TokenConflict`] |
    /// | before `now - accept_limit_ms`, sealed, or not later than an event that was refused so before | [`Refusal::TooOld`] |
    /// | its caller's time is after `now` + [`FUTURE_LIMIT_MS`](crate::namespace::FUTURE_LIMIT_MS) | [`Refusal::TooEarly`] |
    /// | it has [`Bounds`], and its caller's time is that of the counter's last clear or before | [`Refusal::TooOld`] |
    /// | it has [`Bounds`], and it happens now at the time of the counter's last clear, or before | [`Refusal::Unavailable`] |
    /// | it has [`Bounds`], and the count would pass the one in its direction | [`Refusal::BoundReached`] |
    /// | the counter is [`Closed`](super::Closed) in this direction, or the sizes of its pending deltas would exceed the bound | [`Refusal::Overflow`] |
    /// | otherwise | `Ok` |
    ///
    /// # Errors
    /// [`Refusal::Unavailable`] and [`Refusal::Stale`] of all items that went to the same shard.
    fn append(&self, events: &[NewEvent]) -> impl Future<Output = Vec<Result<Appended, Refusal>>> + Send {
        async move {
            let results = self.append_while(events, &|_| true).await;
            with_archived(self, events, results).await
        }
    }

    /// As [`append`](Events::append), without the archive: the call takes no longer than the log. What turns out not to be in the log after a call of the store, and would be sent
    /// again, is sent only if `is_wanted` says of its number that a caller still waits. Otherwise it certainly is not in
    /// the log, and its result is [`Refusal::Unavailable`].
    fn append_while(
        &self,
        events: &[NewEvent],
        is_wanted: &(dyn Fn(usize) -> bool + Sync),
    ) -> impl Future<Output = Vec<Result<Appended, Unlogged>>> + Send;

    /// The answers to events that the log calls [`Unlogged::Archived`], in their order (N15). The call may take long, but
    /// not for ever.
    ///
    /// # Errors
    /// [`Refusal::Unavailable`]: the archive does not answer. [`Refusal::Overloaded`]: too many wait for it already.
    fn find_archived(&self, late: &[NewEvent]) -> impl Future<Output = Vec<Result<Appended, Refusal>>> + Send;

    /// Reads a counter's events of these windows (N12): of all of them, or of the first ones until there are `enough`
    /// events or the read has covered as much as one call may. It reads at least one window.
    fn scan(
        &self,
        counter: &CounterName,
        windows: Range<u64>,
        enough: usize,
    ) -> impl Future<Output = Result<EventScan, Refusal>> + Send;

    /// For each counter, in their order: how long it takes until the store's time has reached this time (Unix ms) and
    /// every fence of the counter's shards, in ms. 0: it has, and what happens in these shards from now on happens at
    /// that time or later, even if the store's clock is set back. The call moves no clock ahead. A clear needs this
    /// order: it is in one shard and orders the adds of all shards (N7).
    fn tick(&self, until: &[(CounterName, u64)]) -> impl Future<Output = Result<Vec<u64>, Refusal>> + Send;

    /// The time before which no further event of the counter can be appended, in Unix ms: that of the shard in which it is
    /// earliest.
    fn exact_to(&self, counter: &CounterName) -> impl Future<Output = Result<u64, Refusal>> + Send;

    /// Drops the slices of a shard that are past `delete_after_ms`, and keeps of them the time buckets in which an event
    /// waits for its rollup, until that rollup. Returns how many slices it dropped; a call drops at most a hundred.
    fn prune(&self, shard: u16) -> impl Future<Output = Result<u64, Refusal>> + Send;

    /// No event of the namespace is before this time, in Unix ms; 0: this is not known.
    fn first_ms(&self) -> u64 {
        0
    }
}

/// The results of events of which the archive answers some.
pub async fn with_archived<L: Events + ?Sized>(
    log: &L,
    events: &[NewEvent],
    results: Vec<Result<Appended, Unlogged>>,
) -> Vec<Result<Appended, Refusal>> {
    let is_late = |number: &usize| results[*number] == Err(Unlogged::Archived);
    let late: Vec<NewEvent> = (0..results.len()).filter(is_late).map(|number| events[number].clone()).collect();
    let mut found = if late.is_empty() { Vec::new() } else { log.find_archived(&late).await }.into_iter();
    let answered = |result: Result<Appended, Unlogged>| match result {
        Ok(appended) => Ok(appended),
        Err(Unlogged::Refused(refusal)) => Err(refusal),
        Err(Unlogged::Archived) => found.next().unwrap_or_else(|| Err(Refusal::Internal("no answer".to_owned()))),
    };
    results.into_iter().map(answered).collect()
}

/// The refusal of an event that happens when it is counted, and got no time in any of its tries.
pub(crate) fn untimed() -> Refusal {
    let why = "it gave the event no time, because it is slow, or because a clear of the counter is ahead of its clock";
    Refusal::Unavailable { applied: Applied::No, why: why.to_owned() }
}
