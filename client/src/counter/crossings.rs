//! The feed of passed thresholds (N16). Times are Unix milliseconds by the store's clock.

use super::CounterClient;
use crate::calls::rpc;
use crate::error::{Refused, Result};
use crate::wire::{from_wire, wire_count, wire_ms};
use serde::Serialize;
use std::time::Duration;
use tallystone_proto::counter::v1 as wire;

/// Which way a count has passed a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CrossingDirection {
    /// It was less than the threshold, and is the threshold or more.
    Up,
    /// It was the threshold or more, and is less.
    Down,
}

/// A count that has passed a threshold (N16).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Crossing {
    /// The counter.
    pub counter: String,
    /// The threshold.
    pub threshold: i64,
    /// Which way the count has passed it.
    pub direction: CrossingDirection,
    /// The new count.
    pub count: i64,
    /// The new count includes every event before this time.
    pub exact_to_ms: u64,
    /// When the rollup or the recount committed the new count.
    pub committed_at_ms: u64,
}

/// Crossings that follow each other, and how far they are complete (N16).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crossings {
    /// In the order of their commits.
    pub crossings: Vec<Crossing>,
    /// The `after` of the next call.
    pub position: String,
    /// Every crossing that was committed before this time is in this answer or before its position.
    pub complete_to_ms: u64,
}

impl CounterClient {
    /// Lists the crossings of a namespace: counts that have passed one of its
    /// [`thresholds`](crate::NamespaceConfig::thresholds) (N16). A caller that continues from the
    /// [`position`](Crossings::position) of each answer gets each crossing once. `after` empty: from the oldest crossings that
    /// are kept; `now`: those that follow. `limit` 0: the server's default; an answer may have up to 31 more. If there is no
    /// crossing, the call waits for one, at most `wait`, 30 s.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::Error::Refused) with the reason `POSITION_EXPIRED` if crossings after the position are no
    /// longer kept.
    pub async fn crossings(&self, namespace: &str, after: &str, limit: u32, wait: Duration) -> Result<Crossings> {
        let request = wire::ListCrossingsRequest {
            namespace: namespace.to_owned(),
            after: after.to_owned(),
            limit: wire_count(limit),
            wait_ms: wire_ms(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
        };
        let response = self.calls.read(wait, request, rpc!(self.counters, list_crossings)).await?.response;
        let crossings = response.crossings.into_iter().map(Crossing::from_wire);
        Ok(Crossings {
            crossings: crossings.collect::<Result<_, Refused>>()?,
            position: response.position,
            complete_to_ms: from_wire(response.complete_to_ms),
        })
    }
}

impl Crossing {
    fn from_wire(crossing: wire::Crossing) -> Result<Self, Refused> {
        let direction = match crossing.direction() {
            wire::CrossingDirection::Up => CrossingDirection::Up,
            wire::CrossingDirection::Down => CrossingDirection::Down,
            wire::CrossingDirection::Unspecified => {
                return Err(Refused::protocol("a crossing of an unknown direction"));
            }
        };
        Ok(Crossing {
            counter: crossing.counter,
            threshold: crossing.threshold,
            direction,
            count: crossing.count,
            exact_to_ms: from_wire(crossing.exact_to_ms),
            committed_at_ms: from_wire(crossing.committed_at_ms),
        })
    }
}
