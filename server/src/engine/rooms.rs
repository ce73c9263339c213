//! The bounds on the calls that wait for the store (O8, docs/decisions/0113): each kind has a room for itself, so that a flood of one kind
//! takes no place of another.

use super::command::Verb;
use super::lanes::Lanes;
use crate::metrics::Metrics;
use std::sync::Arc;
use tallystone_model::{QueueName, Refusal, Shard};
use tallystone_serving::{Overloaded, RoomPlace, WaitingBounds, WaitingRoom};

/// The memory that a waiting item takes in addition to its encoded bytes, about.
const ITEM_MEMORY: usize = 512;

/// The rooms of one server. A call keeps its place until it has its results, or until it was dropped because its caller has gone.
pub(crate) struct Rooms {
    /// New messages.
    pub(super) messages: WaitingRoom,
    /// Complete, Release and ExtendLease: while such a call waits, work that is done may be lost.
    leases: WaitingRoom,
    /// Cancel, Redrive, and Dequeue until it waits for messages.
    others: WaitingRoom,
    metrics: Arc<Metrics>,
}

impl Rooms {
    /// Empty rooms with these bounds each.
    pub(crate) fn new(bounds: WaitingBounds, metrics: &Arc<Metrics>) -> Rooms {
        let of_messages = metrics.clone();
        let messages = WaitingRoom::new(bounds, move |items, bytes| {
            of_messages.waiting_items.set(items as f64);
            of_messages.waiting_bytes.set(bytes as f64);
        });
        let of_leases = metrics.clone();
        let leases = WaitingRoom::new(bounds, move |items, bytes| of_leases.waiting_leases.set(items, bytes));
        let of_others = metrics.clone();
        let others = WaitingRoom::new(bounds, move |items, bytes| of_others.waiting_others.set(items, bytes));
        Rooms { messages, leases, others, metrics: metrics.clone() }
    }

    /// A place for a call; `bytes`: its encoded size.
    pub(super) fn take(&self, verb: Verb, queue: &QueueName, items: usize, bytes: usize) -> Result<RoomPlace, Refusal> {
        let (room, refused) = match verb {
            Verb::Enqueue => (&self.messages, &self.metrics.enqueues_refused),
            Verb::Complete | Verb::Release | Verb::Extend => (&self.leases, &self.metrics.calls_refused),
            Verb::Cancel | Verb::Redrive | Verb::Dequeue => (&self.others, &self.metrics.calls_refused),
        };
        let place = room.take_for(queue.as_str(), items, bytes + items * ITEM_MEMORY);
        place.map_err(|Overloaded { retry_after }| {
            refused.increment(1);
            Refusal::Overloaded { retry_after }
        })
    }
}

/// Notifies the lane if the caller of a call disconnects before it has its results. To be dropped after their receiver: then the lane
/// finds that the caller is gone.
pub(super) struct Leaving<'a> {
    lanes: &'a Lanes,
    shard: &'a Shard,
    verb: Verb,
    has_results: bool,
}

impl<'a> Leaving<'a> {
    pub(super) fn new(lanes: &'a Lanes, shard: &'a Shard, verb: Verb) -> Self {
        Leaving { lanes, shard, verb, has_results: false }
    }

    pub(super) fn answered(mut self) {
        self.has_results = true;
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if !self.has_results {
            self.lanes.caller_left(self.shard, self.verb);
        }
    }
}
