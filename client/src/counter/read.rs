//! Counts, listed counters and events. Times are Unix milliseconds by the store's clock.

use super::namespace::CounterType;
use crate::error::{Refused, Result};
use crate::wire::from_wire;
use serde::Serialize;
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
        }
    }
}
