//! One waiting caller, and the group of all that wait for the same filters.

use crate::engine::call::SubscriptionId;
use crate::engine::command::DequeueCall;
use crate::engine::places::WaiterPlace;
use crate::engine::subscription::Subscription;
use std::collections::{HashMap, VecDeque};
use tallystone_model::{Filter, Refusal};

/// The subscriptions of one lane.
pub(super) type Subscriptions = HashMap<SubscriptionId, Subscription>;
/// The groups of one lane by their filters.
pub(super) type Groups = HashMap<Vec<Filter>, Group>;

/// One that waits for leases.
pub(super) struct Waiter {
    /// Its position in the order of arrival.
    pub(super) arrival: u64,
    pub(super) kind: WaiterKind,
    /// Why its last request was refused. It has a request id, under which a call elsewhere may have got leases: an empty
    /// answer to others does not speak for it.
    pub(super) refused: Option<Refusal>,
    /// Of a caller that got nothing so far, and waits. A subscription has its own.
    pub(super) place: Option<WaiterPlace>,
}

pub(super) enum WaiterKind {
    Caller(Box<DequeueCall>),
    Subscription(SubscriptionId),
}

impl Waiter {
    pub(super) fn new(arrival: u64, kind: WaiterKind) -> Self {
        Waiter { arrival, kind, refused: None, place: None }
    }

    /// How many leases it accepts now; 0: it has disconnected, or has enough.
    pub(super) fn limit(&self, subscriptions: &mut Subscriptions) -> usize {
        match &self.kind {
            WaiterKind::Caller(call) if call.reply.is_closed() => 0,
            WaiterKind::Caller(call) => call.request.limit,
            WaiterKind::Subscription(id) => subscriptions.get_mut(id).map_or(0, |subscription| {
                subscription.queued &= subscription.credits > 0;
                subscription.credits
            }),
        }
    }

    /// The filters that name its group. A closed subscription has none, and no limit either.
    pub(super) fn filters<'a>(&'a self, subscriptions: &'a Subscriptions) -> &'a [Filter] {
        match &self.kind {
            WaiterKind::Caller(call) => &call.request.filters,
            WaiterKind::Subscription(id) => {
                subscriptions.get(id).map_or(&[], |subscription| &subscription.request.filters)
            }
        }
    }
}

/// All that wait for the same filters.
#[derive(Default)]
pub(super) struct Group {
    /// In order of arrival.
    pub(super) waiting: VecDeque<Waiter>,
    /// Its requests that are in the store.
    pub(super) in_flight: usize,
    /// Subscriptions with these filters, waiting or not.
    pub(super) subscriptions: usize,
    /// Its filters count among those for which callers wait.
    pub(super) is_counted: bool,
    /// The epoch of its last request.
    pub(super) requested_in: u64,
    /// Runnable messages that the last result left for it.
    pub(super) remaining: usize,
    /// Why the last request was refused, if a retry may succeed; or why the store was unavailable, until it answers a request
    /// of this group again.
    pub(super) refused: Option<Refusal>,
}

impl Group {
    /// How many messages to request for its waiters; 0: none.
    pub(super) fn wanted(&self, epoch: u64, hint: usize) -> usize {
        match self.waiting.is_empty() {
            true => 0,
            false if self.requested_in < epoch => self.remaining.max(hint).max(1),
            false => self.remaining,
        }
    }

    /// A request of this epoch is being sent.
    pub(super) fn requested(&mut self, epoch: u64) {
        self.requested_in = epoch;
        self.in_flight += 1;
    }

    /// It has no state that matters.
    pub(super) fn is_unused(&self) -> bool {
        self.waiting.is_empty() && self.in_flight == 0 && self.subscriptions == 0
    }
}

/// The group of these filters, created if necessary.
pub(super) fn group_of<'a>(groups: &'a mut Groups, filters: &[Filter]) -> &'a mut Group {
    if !groups.contains_key(filters) {
        groups.insert(filters.to_vec(), Group::default());
    }
    groups.get_mut(filters).expect("inserted above")
}
