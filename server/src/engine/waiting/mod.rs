//! The callers and subscriptions that wait for messages of one shard, and when to request messages for them (Q18).
//!
//! # Why no wake-up is lost
//! A *signal* says that messages may have become runnable: a write of this server is being sent, the store notifies, a
//! due time has come, a retry is due. Each signal begins a new *epoch*. All that wait for the same filters form one
//! *group*. A group records the epoch of its last request to the store ([`Group::requested_in`]). Then:
//!
//! 1. A group with waiters and `requested_in < epoch` has a request in the next flush. Suppose a signal comes while the
//!    group's dequeue is in flight and its list of waiters is empty. When the dequeue returns without messages, its
//!    waiters return to the list, the epoch is later, and the group has a request again.
//! 2. A write of this server signals before the dequeue of the same flush is formed, and the store executes the calls of
//!    one flush in order, the dequeue last. So `requested_in == epoch` says that the dequeue saw the write. (An enqueue
//!    that had to create its queue first is executed after the dequeue; it signals once more when it is done. Of a call that
//!    the store divides, only the first part is executed before: of what the others make runnable the store notifies this server.)
//! 3. A dequeue that returns messages also returns how many runnable ones are left ([`Group::remaining`]). While that is
//!    not zero, requests for waiters continue. They end with a dequeue that returns nothing, or less than its limit: at
//!    that moment the store had no message left for them, and any later one causes a signal.
//! 4. Writes of other servers: every dequeue that may leave waiters behind says so to the store (`wait`). The store
//!    notifies this server when a message becomes runnable after it.
//!
//! # What an answer says
//! A waiter may be requested several times; its answer speaks for all of them. If a reply is lost, its call is repeated as
//! it was until the store answers (`lost`); a caller whose wait ends before that learns that the store may have acted.
//! An empty answer is the store's word, given after its last absence: see [`Group::refused`] and [`Waiter::refused`].

mod admission;
mod batch;
mod expiry;
mod group;
mod holders;
mod lost;
mod revoked;
mod settle;
mod tries;

pub(super) use batch::DequeueBatch;
pub(super) use settle::Retry;

use super::call::SubscriptionId;
use super::command::DequeueCall;
use super::gather::FLUSH_ITEMS;
use super::places::WaiterPlaces;
use super::subscription::{Subscription, WorkEvent};
use batch::LostBatch;
use group::{Group, Groups, Subscriptions, Waiter, WaiterKind, group_of};
use holders::Holders;
use revoked::Revoked;
use std::collections::{HashMap, VecDeque};
use tallystone_model::store::LeaseRef;
use tokio::time::Instant;
use tries::Tries;

/// All that wait for messages of one shard.
pub(super) struct Waiting {
    groups: Groups,
    /// Waiters without a request so far, in order of arrival.
    fresh: VecDeque<Waiter>,
    /// The callers that have disconnected since those were last dropped from `fresh`.
    left: usize,
    subscriptions: Subscriptions,
    arrivals: u64,
    epoch: u64,
    /// How many messages the signals of this epoch may have made runnable.
    hint: usize,
    /// The number of waiters in the groups.
    held: usize,
    /// When the first wait of a held caller ends; may be too early.
    expire_at: Option<Instant>,
    /// When `held` reaches this, disconnected callers are removed.
    prune_at: usize,
    /// This server, as its tickets name it.
    server: u64,
    /// The slots whose ticket is not over, each with the number of its first try.
    taken: [Option<u64>; SLOTS],
    revoked: Revoked,
    holders: Holders,
    /// Calls whose replies were lost.
    lost: Vec<LostBatch>,
    /// Subscriptions with results of the current flush.
    touched: Vec<SubscriptionId>,
    stopping: bool,
    places: WaiterPlaces,
    /// When disconnected callers were last removed to make room.
    pruned_at: Option<Instant>,
    tries: Tries,
}

/// How many dequeues of one lane may be without an answer at once.
pub(super) const SLOTS: usize = 2;

/// With fewer waiters than this, disconnected callers stay in the groups.
const PRUNE_MIN: usize = 1_024;

impl Waiting {
    pub(super) fn new(server: u64, places: WaiterPlaces) -> Self {
        Waiting {
            server,
            taken: [None; SLOTS],
            revoked: Revoked::default(),
            holders: Holders::default(),
            lost: Vec::new(),
            groups: HashMap::new(),
            fresh: VecDeque::new(),
            left: 0,
            subscriptions: HashMap::new(),
            arrivals: 0,
            epoch: 1,
            hint: 0,
            held: 0,
            expire_at: None,
            prune_at: PRUNE_MIN,
            touched: Vec::new(),
            stopping: false,
            places,
            pruned_at: None,
            tries: Tries::default(),
        }
    }

    /// A new caller. Its first request goes to the store: it must see what another server has just acknowledged. Only a flood
    /// of callers that would not be allowed to wait is refused at once.
    pub(super) fn arrive(&mut self, call: Box<DequeueCall>, now: Instant) {
        let place = match self.admit_try(&call, now) {
            Ok(place) => place,
            Err(full) => return drop(call.reply.send(Err(full))),
        };
        let arrival = self.arrival();
        self.fresh.push_back(Waiter { place, ..Waiter::new(arrival, WaiterKind::Caller(call)) });
    }

    /// A new subscription, without credits.
    pub(super) fn subscribe(&mut self, id: SubscriptionId, mut subscription: Subscription, now: Instant) {
        let filters = &subscription.request.filters;
        match self.admit(filters, now) {
            Ok(place) => {
                group_of(&mut self.groups, filters).subscriptions += 1;
                subscription.place = Some(place);
            }
            Err(full) => {
                subscription.stopped = true;
                subscription.event().end = Some(full);
                subscription.send();
            }
        }
        self.subscriptions.insert(id, subscription);
    }

    /// The subscription accepts no more leases. Those that arrive later are released.
    pub(super) fn stop_subscription(&mut self, id: SubscriptionId) {
        if let Some(subscription) = self.subscriptions.get_mut(&id) {
            subscription.stopped = true;
            subscription.credits = 0;
        }
    }

    /// The subscription has closed.
    pub(super) fn unsubscribe(&mut self, id: SubscriptionId) {
        let Some(subscription) = self.subscriptions.remove(&id) else { return };
        self.holders.prune(|id| self.subscriptions.contains_key(id));
        let filters = &subscription.request.filters;
        if subscription.place.is_some()
            && let Some(group) = self.groups.get_mut(filters)
        {
            group.subscriptions -= 1;
            self.forget_if_unused(filters);
        }
    }

    /// The subscription accepts this number of further leases.
    pub(super) fn credit(&mut self, id: SubscriptionId, credits: usize) {
        let arrival = self.arrival();
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return };
        if subscription.stopped {
            return;
        }
        subscription.credits += credits;
        if subscription.credits > 0 && !subscription.queued {
            subscription.queued = true;
            self.fresh.push_back(Waiter::new(arrival, WaiterKind::Subscription(id)));
        }
    }

    /// The subscription does not have these leases any more.
    pub(super) fn let_go(&mut self, id: SubscriptionId, fencing_tokens: &[u64]) {
        self.holders.let_go(id, fencing_tokens);
    }

    /// A lease has been revoked: the subscription that has it is notified. A dequeue that is under way may be the one that gives
    /// it.
    pub(super) fn revoke(&mut self, lease: &LeaseRef) {
        if let Some(last) = self.taken.iter().copied().flatten().max() {
            self.revoked.note(lease, last);
        }
        let Some(id) = self.holders.take(lease.fencing_token) else { return };
        if let Some(subscription) = self.subscriptions.get_mut(&id) {
            subscription.event().revoked.push(lease.clone());
            subscription.send();
        }
    }

    /// The results of the current flush for a subscription, to be added to.
    pub(super) fn event(&mut self, id: SubscriptionId) -> Option<&mut WorkEvent> {
        let subscription = self.subscriptions.get_mut(&id)?;
        self.touched.push(id);
        Some(subscription.event())
    }

    /// Sends every subscription its results of the current flush.
    pub(super) fn send_events(&mut self) {
        for id in self.touched.drain(..) {
            if let Some(subscription) = self.subscriptions.get_mut(&id) {
                subscription.send();
            }
        }
    }

    /// Messages may have become runnable, perhaps `hint` of them.
    pub(super) fn signal(&mut self, hint: usize) {
        self.epoch += 1;
        self.hint = self.hint.max(hint);
        self.repeat_lost();
    }

    /// Whether there are no waiters, no subscriptions that may become waiters, and no lost replies.
    pub(super) fn is_idle(&self) -> bool {
        self.held() == 0 && self.fresh.is_empty() && self.subscriptions.is_empty()
    }

    /// The number of waiters without a request so far.
    pub(super) fn fresh(&self) -> usize {
        self.fresh.len()
    }

    /// The number of waiters that wait for a signal, or for the repeat of a lost call.
    pub(super) fn held(&self) -> usize {
        self.held + self.lost_requests()
    }

    /// Forms the next dequeue: a lost call again, or from each group that a signal concerns as many waiters as may get
    /// messages, then all fresh waiters; at most [`FLUSH_ITEMS`] leases, or the first waiter's.
    pub(super) fn dispatch(&mut self, now: Instant) -> Option<DequeueBatch> {
        if let Some(batch) = self.next_repeat(now) {
            return Some(batch);
        }
        if self.held == 0 && self.fresh.is_empty() {
            self.hint = 0;
            return None;
        }
        let ticket = self.take_ticket()?;
        let (epoch, hint) = (self.epoch, std::mem::take(&mut self.hint));
        let Waiting { groups, fresh, subscriptions, held, .. } = self;
        let mut batch = DequeueBatch::new(ticket);
        let mut room = FLUSH_ITEMS;
        let mut concerned: Vec<&mut Group> = match *held {
            0 => Vec::new(),
            _ => groups.values_mut().filter(|group| group.wanted(epoch, hint) > 0).collect(),
        };
        concerned.sort_unstable_by_key(|group| group.waiting.front().map(|waiter| waiter.arrival));
        for group in concerned {
            let mut wanted = group.wanted(epoch, hint);
            while wanted > 0
                && let Some(waiter) = group.waiting.front()
            {
                let limit = waiter.limit(subscriptions);
                if limit > room && !batch.requests.is_empty() {
                    break;
                }
                let Some(waiter) = group.waiting.pop_front() else { break };
                *held -= 1;
                if limit > 0 {
                    room = room.saturating_sub(limit);
                    wanted = wanted.saturating_sub(limit);
                    group.requested(epoch);
                    batch.add(waiter, limit, subscriptions, now);
                }
            }
            group.remaining = if group.waiting.is_empty() { 0 } else { wanted };
        }
        while let Some(waiter) = fresh.front() {
            let limit = waiter.limit(subscriptions);
            if limit > room && !batch.requests.is_empty() {
                break;
            }
            let Some(waiter) = fresh.pop_front() else { break };
            if limit > 0 {
                room = room.saturating_sub(limit);
                group_of(groups, waiter.filters(subscriptions)).requested(epoch);
                batch.add(waiter, limit, subscriptions, now);
            }
        }
        batch.wait |= *held > 0;
        if batch.requests.is_empty() {
            self.end_ticket(&ticket);
            return None;
        }
        Some(batch)
    }

    fn arrival(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }
}
