//! What is read of counters. Times are Unix milliseconds by the store's clock.

use super::namespace::CounterType;
use crate::client::from_wire;
use crate::error::{Refused, Result};
use serde::Serialize;
use tallystone_proto::counter::v1 as wire;

/// A count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// 0 of a counter that was never added to. Of an accurate one: with everything acknowledged before the call.
    pub count: i64,
    /// The count holds all that happened before this time; 0: never rolled up, or best effort.
    pub exact_to_ms: u64,
    /// What is promised of it.
    pub counter_type: CounterType,
}

/// A counter in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CounterEntry {
    /// Its name.
    pub counter: String,
    /// The last rollup's count.
    pub count: i64,
    /// That count holds all that happened before this time; 0: never rolled up, or best effort.
    pub exact_to_ms: u64,
    /// The latest event that the rollup has seen.
    pub last_write_ms: u64,
}

/// Something that was added to a counter, or that it was cleared (N12).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CounterEvent {
    /// When it happened.
    pub event_time_ms: u64,
    /// Its token.
    pub token: String,
    /// What was added.
    pub delta: i64,
    /// Not an add: the counter was cleared.
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
