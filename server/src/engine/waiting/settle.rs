//! What a dequeue's result means for its waiters.

use super::Waiting;
use super::batch::DequeueBatch;
use super::group::{Group, Waiter, WaiterKind, group_of};
use crate::engine::granted::Granted;
use std::collections::VecDeque;
use tallystone_model::store::Dequeued;
use tallystone_model::{Applied, Filter, Lease, Refusal};
use tokio::time::Instant;

/// When to request messages again although no signal has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Retry {
    /// The store does not answer, or builds an index.
    Soon,
    /// The queue is paused, and a subscription waits until it is resumed.
    Paused,
}

/// Whether, and when, to retry for a refused waiter. A subscription waits until its queue is resumed; a unary caller gets
/// the refusal.
fn retry_after(refusal: &Refusal, kind: &WaiterKind) -> Option<Retry> {
    match (refusal, kind) {
        (refusal, _) if refusal.is_unavailable() => Some(Retry::Soon),
        (Refusal::IndexBuilding { .. }, _) => Some(Retry::Soon),
        (Refusal::DequeueBlocked { .. }, WaiterKind::Subscription(_)) => Some(Retry::Paused),
        _ => None,
    }
}

impl Waiting {
    /// Gives the result of a dequeue to its waiters. `grant` wraps leases; its second argument: the request has an id.
    pub(in crate::engine) fn settle(
        &mut self,
        batch: DequeueBatch,
        answer: Result<Dequeued, Refusal>,
        now: Instant,
        grant: impl Fn(Vec<Lease>, bool) -> Granted,
    ) -> Option<Retry> {
        match answer {
            Ok(answer) => self.settle_each(batch, answer, now, grant),
            Err(refusal) => self.settle_refused(batch, refusal, now),
        }
    }

    fn settle_each(
        &mut self,
        batch: DequeueBatch,
        answer: Dequeued,
        now: Instant,
        grant: impl Fn(Vec<Lease>, bool) -> Granted,
    ) -> Option<Retry> {
        let (ticket, in_doubt) = (batch.ticket, self.revoked.is_unknown_of(batch.ticket.first));
        let ready = usize::try_from(answer.outlook.ready).unwrap_or(usize::MAX);
        let (cut_short, is_repeat, now_ms) = (answer.cut_short, batch.ticket.is_repeat(), answer.outlook.now_ms);
        let mut retry = None;
        let mut answers = answer.leases.into_iter();
        for (request, waiter) in batch.requests.into_iter().zip(batch.waiters) {
            // A store that returns too few results is a defect, which must not leave a caller without answer.
            let answer = answers.next().unwrap_or_else(|| Err(Refusal::Internal("a request went unanswered".into())));
            let (limit, has_request_id) = (request.limit, !request.request_id.is_empty());
            let group = self.settled(&request.filters);
            match answer {
                Ok(mut leases) => {
                    // A repetition gives what was leased before, and other shards may have answered later.
                    leases.iter_mut().for_each(|lease| lease.left_at(now_ms));
                    // A filtered request that gets less than its limit has found the last messages that pass, unless
                    // the store met a bound. Without filters the store counts what is left. A repeated request gets
                    // its earlier leases, whatever is runnable.
                    let dry = match request.filters.is_empty() || has_request_id || is_repeat || cut_short {
                        true => leases.is_empty(),
                        false => leases.len() < limit,
                    };
                    group.remaining = if dry { 0 } else { ready };
                    if group.refused.take().is_some() {
                        self.request_refused_again(&request.filters);
                    }
                    // The credits of those that are not delivered return.
                    if !self.revoked.is_empty() {
                        leases.retain(|lease| !self.revoked.has(lease));
                    }
                    if in_doubt && !has_request_id {
                        drop(grant(std::mem::take(&mut leases), false));
                    }
                    match waiter {
                        Some(waiter) => {
                            self.deliver(waiter, limit, leases, now, |leases| grant(leases, has_request_id));
                        }
                        None => drop(grant(leases, has_request_id)),
                    }
                }
                Err(refusal) => {
                    let Some(waiter) = waiter else {
                        self.forget_if_unused(&request.filters);
                        continue;
                    };
                    match retry_after(&refusal, &waiter.kind) {
                        Some(when) => {
                            group.refused = Some(refusal.clone());
                            retry = if retry == Some(Retry::Soon) { retry } else { Some(when) };
                            self.hold(waiter, limit, now, Some(refusal));
                        }
                        None => self.refuse(waiter, refusal),
                    }
                }
            }
            self.forget_if_unused(&request.filters);
        }
        self.end_ticket(&ticket);
        retry
    }

    /// The store answers this group again: a waiter for which that answer does not speak gets a
    /// request again.
    fn request_refused_again(&mut self, filters: &[Filter]) {
        let Some(group) = self.groups.get_mut(filters) else { return };
        let (refused, others): (VecDeque<Waiter>, VecDeque<Waiter>) =
            std::mem::take(&mut group.waiting).into_iter().partition(|waiter| waiter.refused.is_some());
        group.waiting = others;
        self.held -= refused.len();
        refused.into_iter().rev().for_each(|waiter| self.fresh.push_front(waiter));
    }

    /// The whole store call was refused.
    fn settle_refused(&mut self, batch: DequeueBatch, refusal: Refusal, now: Instant) -> Option<Retry> {
        if refusal.is_unavailable() {
            // Until the store answers a request of a group again, it is unknown what there is for it. Its waiters have
            // no part in a lost call.
            let refusal = match &refusal {
                Refusal::Unavailable { why, .. } => Refusal::Unavailable { applied: Applied::No, why: why.clone() },
                other => other.clone(),
            };
            self.groups.values_mut().for_each(|group| group.refused = Some(refusal.clone()));
        }
        let may_have_acted = refusal.may_have_acted();
        // Of the earlier tries a refusal says nothing, unless it says that the queue is gone, and with it their leases.
        let is_lost = batch.ticket.is_repeat() && !matches!(refusal, Refusal::QueueNotFound { .. });
        if may_have_acted || is_lost {
            return self.lose(batch, &refusal, now);
        }
        self.end_ticket(&batch.ticket);
        let mut retry = None;
        for (request, waiter) in batch.requests.into_iter().zip(batch.waiters) {
            self.settled(&request.filters);
            if let Some(waiter) = waiter {
                match retry_after(&refusal, &waiter.kind) {
                    Some(when) => {
                        retry = Some(when);
                        self.hold(waiter, request.limit, now, Some(refusal.clone()));
                    }
                    None => self.refuse(waiter, refusal.clone()),
                }
            }
            self.forget_if_unused(&request.filters);
        }
        if matches!(refusal, Refusal::DequeueBlocked { .. } | Refusal::QueueNotFound { .. }) {
            // Every other waiter would get the same refusal.
            let waiting: Vec<Waiter> = self.groups.values_mut().flat_map(|group| group.waiting.drain(..)).collect();
            self.held -= waiting.len();
            for waiter in waiting {
                match retry_after(&refusal, &waiter.kind) {
                    Some(when) => {
                        retry = Some(when);
                        self.wait_on(waiter);
                    }
                    None => self.refuse(waiter, refusal.clone()),
                }
            }
            self.forget_unused();
        }
        retry
    }

    /// Gives a waiter its leases, or lets it wait on.
    fn deliver(
        &mut self,
        waiter: Waiter,
        limit: usize,
        leases: Vec<Lease>,
        now: Instant,
        grant: impl FnOnce(Vec<Lease>) -> Granted,
    ) {
        if leases.is_empty() {
            return self.hold(waiter, limit, now, None);
        }
        match waiter.kind {
            // If the caller has disconnected, the error returns the leases, and dropping it releases them.
            WaiterKind::Caller(call) => drop(call.reply.send(Ok(grant(leases)))),
            WaiterKind::Subscription(id) => {
                let arrival = self.arrival();
                let Some(subscription) = self.subscriptions.get_mut(&id) else { return drop(grant(leases)) };
                if subscription.stopped {
                    return drop(grant(leases));
                }
                self.holders.add(id, &leases);
                subscription.credits += limit - leases.len().min(limit);
                let wait_on = subscription.credits > 0 && !subscription.queued;
                subscription.event().leases = Some(grant(leases));
                self.touched.push(id);
                if wait_on {
                    self.wait_on(Waiter::new(arrival, WaiterKind::Subscription(id)));
                }
            }
        }
    }

    /// A waiter that got nothing: it waits on, or its wait ends.
    pub(super) fn hold(&mut self, mut waiter: Waiter, limit: usize, now: Instant, refusal: Option<Refusal>) {
        match waiter.kind {
            WaiterKind::Caller(call) if call.until <= now || self.stopping => {
                let answer = match refusal {
                    Some(refusal) => Err(refusal),
                    None => Ok(Granted::none()),
                };
                drop(call.reply.send(answer));
            }
            WaiterKind::Caller(ref mut call) => {
                call.room = None;
                if waiter.place.is_none() {
                    let filters = call.request.filters.clone();
                    match self.admit(&filters, now) {
                        Ok(place) => waiter.place = Some(place),
                        // Why it would wait says more than that it may not.
                        Err(full) => return self.refuse(waiter, refusal.unwrap_or(full)),
                    }
                }
                let WaiterKind::Caller(call) = &waiter.kind else { return };
                waiter.refused = refusal.filter(|_| !call.request.request_id.is_empty());
                self.wait_on(waiter);
            }
            WaiterKind::Subscription(id) => {
                let Some(subscription) = self.subscriptions.get_mut(&id) else { return };
                if subscription.stopped {
                    return;
                }
                subscription.credits += limit;
                if !subscription.queued {
                    self.wait_on(waiter);
                }
            }
        }
    }

    /// Inserts a waiter into its group, in order of arrival.
    pub(super) fn wait_on(&mut self, waiter: Waiter) {
        match &waiter.kind {
            WaiterKind::Caller(call) => {
                self.expire_at = Some(self.expire_at.map_or(call.until, |at| at.min(call.until)));
            }
            WaiterKind::Subscription(id) => {
                let Some(subscription) = self.subscriptions.get_mut(id) else { return };
                subscription.queued = true;
            }
        }
        let group = group_of(&mut self.groups, waiter.filters(&self.subscriptions));
        let at = group.waiting.partition_point(|other| other.arrival < waiter.arrival);
        group.waiting.insert(at, waiter);
        self.held += 1;
        if self.held >= self.prune_at {
            self.prune();
        }
    }

    fn refuse(&mut self, waiter: Waiter, refusal: Refusal) {
        match waiter.kind {
            WaiterKind::Caller(call) => drop(call.reply.send(Err(refusal))),
            WaiterKind::Subscription(id) => {
                if let Some(subscription) = self.subscriptions.get_mut(&id) {
                    subscription.stopped = true;
                    subscription.credits = 0;
                    subscription.event().end = Some(refusal);
                    self.touched.push(id);
                }
            }
        }
    }

    /// The group of a request that has returned.
    pub(super) fn settled(&mut self, filters: &[Filter]) -> &mut Group {
        let group = self.groups.get_mut(filters).expect("a group stays while a request of it is in flight");
        group.in_flight -= 1;
        group
    }
}
