//! How a wait ends without messages.

use super::group::{Waiter, WaiterKind};
use super::{PRUNE_MIN, Waiting};
use crate::engine::granted::Granted;
use tokio::time::Instant;

impl Waiting {
    /// When the first wait of a held caller ends; may be too early, never too late.
    pub(in crate::engine) fn expire_at(&self) -> Option<Instant> {
        self.expire_at
    }

    /// Answers the callers whose wait has ended: with no leases if nothing was runnable, with the refusal if the store did
    /// not say so.
    pub(in crate::engine) fn expire(&mut self, now: Instant) {
        let mut next: Option<Instant> = None;
        for group in self.groups.values_mut() {
            let refusal = group.refused.as_ref().or(self.unavailable.as_ref());
            for waiter in std::mem::take(&mut group.waiting) {
                match waiter.kind {
                    WaiterKind::Caller(call) if call.until <= now => {
                        self.held -= 1;
                        let answer = refusal.map_or_else(|| Ok(Granted::none()), |refusal| Err(refusal.clone()));
                        drop(call.reply.send(answer));
                        continue;
                    }
                    WaiterKind::Caller(ref call) => next = Some(next.map_or(call.until, |next| next.min(call.until))),
                    WaiterKind::Stream(_) => {}
                }
                group.waiting.push_back(waiter);
            }
        }
        self.expire_at = next;
        self.forget_unused();
    }

    /// The server stops: all waiting callers get an empty answer, and so do those that come back from the store.
    pub(in crate::engine) fn stop(&mut self, now: Instant) {
        self.stopping = true;
        let waiting: Vec<Waiter> = self.groups.values_mut().flat_map(|group| group.waiting.drain(..)).collect();
        self.held -= waiting.len();
        for waiter in waiting {
            self.hold(waiter, 0, now, None);
        }
    }

    /// Removes callers that have disconnected. Runs only when the number of waiters has doubled, so its cost is
    /// amortized.
    pub(super) fn prune(&mut self) {
        let streams = &self.streams;
        let mut held = 0;
        for group in self.groups.values_mut() {
            group.waiting.retain(|waiter| match &waiter.kind {
                WaiterKind::Caller(call) => !call.reply.is_closed(),
                WaiterKind::Stream(id) => streams.contains_key(id),
            });
            held += group.waiting.len();
        }
        self.held = held;
        self.prune_at = (2 * held).max(PRUNE_MIN);
    }
}
