//! How a wait ends without messages.

use super::group::{Waiter, WaiterKind};
use super::{PRUNE_MIN, Waiting};
use crate::engine::gather::may_drop;
use crate::engine::granted::Granted;
use std::collections::VecDeque;
use std::time::Duration;
use tallystone_model::Refusal;
use tokio::time::Instant;

/// The pause behind a pass over the waiters, for each that is held. With 10,000 of them there are at most 25 passes a second, and a wait ends
/// up to 40 ms late.
const PASS_OF_ONE: Duration = Duration::from_micros(4);
/// The longest pause, whatever the number of waiters.
const PASS_MAX: Duration = Duration::from_millis(50);

impl Waiting {
    /// When the first wait of a held caller ends; may be too early, and too late by at most [`PASS_MAX`].
    pub(in crate::engine) fn expire_at(&self) -> Option<Instant> {
        self.expire_at
    }

    /// Answers the callers whose wait has ended: with no leases if nothing was runnable, with the refusal if the store did
    /// not say so.
    pub(in crate::engine) fn expire(&mut self, now: Instant) {
        let mut next: Option<Instant> = None;
        for group in self.groups.values_mut() {
            for waiter in std::mem::take(&mut group.waiting) {
                match waiter.kind {
                    WaiterKind::Caller(call) if call.until <= now => {
                        self.held -= 1;
                        let refusal = waiter.refused.or_else(|| group.refused.clone());
                        drop(call.reply.send(refusal.map_or_else(|| Ok(Granted::none()), Err)));
                        continue;
                    }
                    WaiterKind::Caller(ref call) => next = Some(next.map_or(call.until, |next| next.min(call.until))),
                    WaiterKind::Subscription(_) => {}
                }
                group.waiting.push_back(waiter);
            }
        }
        self.expire_at = next;
        self.expire_lost(Some(now));
        let pause = PASS_OF_ONE.saturating_mul(u32::try_from(self.held).unwrap_or(u32::MAX)).min(PASS_MAX);
        self.expire_at = self.expire_at.map(|at| at.max(now + pause));
        self.forget_unused();
    }

    /// The server stops: all waiting callers are answered as if their wait had ended, and so are those that come back from
    /// the store. Lost calls get one more try, so that their leases are released.
    pub(in crate::engine) fn stop(&mut self, now: Instant) {
        self.stopping = true;
        self.expire_lost(None);
        self.repeat_lost();
        let mut waiting: Vec<(Waiter, Option<Refusal>)> = Vec::new();
        for group in self.groups.values_mut() {
            let refused = group.refused.clone();
            waiting.extend(group.waiting.drain(..).map(|mut waiter| {
                let refused = waiter.refused.take().or_else(|| refused.clone());
                (waiter, refused)
            }));
        }
        self.held -= waiting.len();
        for (waiter, refused) in waiting {
            self.hold(waiter, 0, now, refused);
        }
    }

    /// A caller has disconnected.
    pub(in crate::engine) fn caller_left(&mut self) {
        self.left += 1;
    }

    /// Removes callers that have disconnected before their first request, as the calls of other verbs.
    pub(in crate::engine) fn drop_left(&mut self) {
        if !may_drop(self.left, self.fresh.len()) {
            return;
        }
        self.left = 0;
        let is_gone = |waiter: &Waiter| matches!(&waiter.kind, WaiterKind::Caller(call) if call.reply.is_closed());
        let (gone, fresh): (VecDeque<Waiter>, VecDeque<Waiter>) =
            std::mem::take(&mut self.fresh).into_iter().partition(is_gone);
        self.fresh = fresh;
        for waiter in gone.iter().filter(|waiter| waiter.place.is_some()) {
            if let WaiterKind::Caller(call) = &waiter.kind {
                self.forget_if_unused(&call.request.filters);
            }
        }
    }

    /// Removes callers that have disconnected. Runs only when the number of waiters has doubled, so its cost is
    /// amortized.
    pub(super) fn prune(&mut self) {
        let subscriptions = &self.subscriptions;
        let mut held = 0;
        for group in self.groups.values_mut() {
            group.waiting.retain(|waiter| match &waiter.kind {
                WaiterKind::Caller(call) => !call.reply.is_closed(),
                WaiterKind::Subscription(id) => subscriptions.contains_key(id),
            });
            held += group.waiting.len();
        }
        self.held = held;
        self.forget_unused();
        self.prune_at = (2 * held).max(PRUNE_MIN);
    }
}
