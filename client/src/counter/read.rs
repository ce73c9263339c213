//! Counts, listed counters and events. Times are Unix milliseconds by the store's clock.

use super::add::now_ms;
use super::namespace::CounterType;
use crate::error::{Refused, Result};
use crate::inspect::Page;
use crate::wire::{from_wire, wire_ms};
use serde::Serialize;
use std::time::Duration;
use tallystone_proto::counter::v1 as wire;

/// A count, and the time up to which it is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// 0 for a counter to which nothing was added. Accurate: includes every add acknowledged before the call.
    pub count: i64,
    /// The count includes every event before this time; 0: never rolled up, or best effort.
    pub exact_to_ms: u64,
    /// What the namespace promises of the count.
    pub counter_type: CounterType,
}

/// The count of a counter in all regions of its namespace (N12).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GlobalCount {
    /// The sum of the parts.
    pub count: i64,
    /// The count includes every event before this time in all regions, after the latest clear that is known; 0: nothing is known
    /// of a region.
    pub exact_to_ms: u64,
    /// In the order of the namespace's regions.
    pub regions: Vec<RegionCount>,
}

/// The part of one region in a global count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegionCount {
    /// The region.
    pub region: String,
    /// The sum of its adds.
    pub count: i64,
    /// This part includes every event of the region before this time; 0: nothing is known of it.
    pub exact_to_ms: u64,
}

/// How fresh a count must be, and how long the server may wait until it is (N19).
///
/// A count becomes exact to a time when the server accepts no earlier add any more: the namespace's `accept_limit_ms` (5 s by
/// default) and about a second later. If it is not exact in time, the read is refused as `NOT_EXACT_YET`, and the metadata
/// `exact_to_ms` says to what time it is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExactTo {
    /// The answer's `exact_to_ms` is at least this.
    pub min_exact_to_ms: u64,
    /// At most 30 s; zero: the server does not wait.
    pub wait: Duration,
}

impl ExactTo {
    /// Exact to this time, with a wait of ten seconds.
    pub fn new(min_exact_to_ms: u64) -> Self {
        ExactTo { min_exact_to_ms, wait: Duration::from_secs(10) }
    }

    /// Exact to now by this machine's clock.
    pub fn now() -> Self {
        ExactTo::new(now_ms())
    }

    /// Includes an event of this time, such as [`Added::event_time_ms`](super::Added::event_time_ms).
    pub fn after(event_time_ms: u64) -> Self {
        ExactTo::new(event_time_ms.saturating_add(1))
    }

    /// Sets how long the server may wait.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// `min_exact_to_ms` and `wait_ms`; `None`: the count of the last rollup will do.
    pub(super) fn into_wire(to: Option<ExactTo>) -> (i64, i64) {
        let of = |to: ExactTo| {
            let wait_ms = u64::try_from(to.wait.as_millis()).unwrap_or(u64::MAX);
            (wire_ms(to.min_exact_to_ms), wire_ms(wait_ms))
        };
        to.map(of).unwrap_or_default()
    }
}

/// A counter in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CounterEntry {
    /// Its name.
    pub counter: String,
    /// The count of its last rollup; best effort: its count.
    pub count: i64,
    /// That count includes every event before this time; 0: never rolled up, or best effort.
    pub exact_to_ms: u64,
    /// The time of the latest event that a rollup has seen.
    pub last_write_ms: u64,
}

/// An add or a clear of a counter (N12).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CounterEvent {
    /// When it happened.
    pub event_time_ms: u64,
    /// Its token.
    pub token: String,
    /// What was added; 0 for a clear.
    pub delta: i64,
    /// The counter was cleared.
    pub clear: bool,
    /// Where the add came from (N20); empty: it did not say, or it is a clear.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// What the add counted; empty: it did not say, or it is a clear.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub event_item_key: String,
}

/// The length of the periods by which adds are summed (N16). A day begins at 00:00 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Period {
    /// A minute.
    Minute,
    /// An hour.
    Hour,
    /// A day.
    Day,
}

impl Period {
    /// Its length.
    pub fn length_ms(self) -> u64 {
        match self {
            Period::Minute => 60_000,
            Period::Hour => 3_600_000,
            Period::Day => 86_400_000,
        }
    }

    pub(super) fn into_wire(self) -> i32 {
        let period = match self {
            Period::Minute => wire::Period::Minute,
            Period::Hour => wire::Period::Hour,
            Period::Day => wire::Period::Day,
        };
        period.into()
    }
}

/// The adds of a counter in one period (N16).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PeriodSum {
    /// When the period begins.
    pub from_ms: u64,
    /// The sum of its adds.
    pub sum: i64,
    /// The number of its adds.
    pub adds: u64,
}

/// A page of sums (N16).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sums {
    /// The periods with adds, in the order of time, and the token of the next page. A page may be empty without being the
    /// last.
    pub page: Page<PeriodSum>,
    /// No add before this time can come any more: the sum of a period that ends at this time or before is final.
    /// All pages have the same time.
    pub exact_to_ms: u64,
    /// Adds before this time are older than the namespace's `delete_after_ms`, or were when that was shorter, and may have been
    /// dropped.
    pub kept_from_ms: u64,
}

impl Sums {
    pub(super) fn from_wire(sums: wire::GetSumsResponse) -> Self {
        let sum = |wire::PeriodSum { from_ms, sum, adds }| PeriodSum {
            from_ms: from_wire(from_ms),
            sum,
            adds: from_wire(adds),
        };
        let items = sums.sums.into_iter().map(sum).collect();
        let page = Page { items, next_page_token: sums.next_page_token };
        Sums { page, exact_to_ms: from_wire(sums.exact_to_ms), kept_from_ms: from_wire(sums.kept_from_ms) }
    }
}

impl Counted {
    pub(super) fn from_wire(counted: wire::GetCountResponse) -> Result<Self, Refused> {
        let counter_type = CounterType::from_wire(counted.counter_type());
        Ok(Counted {
            count: counted.count,
            exact_to_ms: from_wire(counted.exact_to_ms),
            counter_type: counter_type.ok_or_else(|| Refused::protocol("a count of an unknown type"))?,
        })
    }
}

impl GlobalCount {
    pub(super) fn from_wire(counted: wire::GetCountResponse) -> Self {
        let part = |wire::RegionCount { region, count, exact_to_ms }| RegionCount {
            region,
            count,
            exact_to_ms: from_wire(exact_to_ms),
        };
        let regions = counted.regions.into_iter().map(part).collect();
        GlobalCount { count: counted.count, exact_to_ms: from_wire(counted.exact_to_ms), regions }
    }
}

impl CounterEntry {
    pub(super) fn from_wire(entry: wire::CounterEntry) -> Self {
        CounterEntry {
            counter: entry.counter,
            count: entry.count,
            exact_to_ms: from_wire(entry.exact_to_ms),
            last_write_ms: from_wire(entry.last_write_ms),
        }
    }
}

impl CounterEvent {
    pub(super) fn from_wire(event: wire::CounterEvent) -> Self {
        CounterEvent {
            event_time_ms: from_wire(event.event_time_ms),
            token: event.token,
            delta: event.delta,
            clear: event.clear,
            source: event.source,
            event_item_key: event.event_item_key,
        }
    }
}
