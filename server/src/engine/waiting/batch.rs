//! One dequeue of the store, combined from the requests of many waiters.

use super::group::{Subscriptions, Waiter, WaiterKind};
use tallystone_model::store::{DequeueRequest, Ticket};
use tokio::time::Instant;

/// The requests of one store call, and the waiters they belong to.
pub(in crate::engine) struct DequeueBatch {
    /// For the store.
    pub(in crate::engine) requests: Vec<DequeueRequest>,
    /// Whether any waiter will wait on if it gets nothing.
    pub(in crate::engine) wait: bool,
    /// Names the call, so that it can be repeated.
    pub(in crate::engine) ticket: Ticket,
    /// The waiter of each request; `None`: it has been answered, and the leases that its request may have got are
    /// released.
    pub(super) waiters: Vec<Option<Waiter>>,
}

/// A call whose reply was lost.
pub(super) struct LostBatch {
    pub(super) batch: DequeueBatch,
    /// Why the last try has no answer.
    pub(super) why: String,
    /// It is to be repeated with the next flush.
    pub(super) due: bool,
}

impl DequeueBatch {
    pub(super) fn new(ticket: Ticket) -> Self {
        DequeueBatch { requests: Vec::new(), wait: false, ticket, waiters: Vec::new() }
    }

    /// How many messages it may lease.
    pub(in crate::engine) fn limit(&self) -> usize {
        self.requests.iter().map(|request| request.limit).sum()
    }

    /// Adds a waiter. The credits of a subscription move into the request; those that are not used return with its result.
    pub(super) fn add(&mut self, waiter: Waiter, limit: usize, subscriptions: &mut Subscriptions, now: Instant) {
        let request = match &waiter.kind {
            WaiterKind::Caller(call) => {
                self.wait |= call.until > now;
                call.request.clone()
            }
            WaiterKind::Subscription(id) => {
                let Some(subscription) = subscriptions.get_mut(id) else { return };
                self.wait = true;
                subscription.queued = false;
                subscription.credits = 0;
                DequeueRequest { limit, ..subscription.request.clone() }
            }
        };
        self.requests.push(request);
        self.waiters.push(Some(waiter));
    }

    /// Prepares the next try of a call whose reply was lost. The requests keep their positions. A caller that is gone gets nothing
    /// new.
    pub(super) fn repeat(&mut self, number: u64, subscriptions: &Subscriptions, now: Instant) {
        self.ticket.number = number;
        self.wait = false;
        for (request, waiter) in self.requests.iter_mut().zip(&mut self.waiters) {
            match waiter.as_ref().map(|waiter| &waiter.kind) {
                Some(WaiterKind::Caller(call)) if !call.reply.is_closed() => self.wait |= call.until > now,
                Some(WaiterKind::Subscription(id))
                    if subscriptions.get(id).is_some_and(|subscription| !subscription.stopped) =>
                {
                    self.wait = true
                }
                _ => {
                    *waiter = None;
                    request.limit = 0;
                }
            }
        }
    }
}
