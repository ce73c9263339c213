//! Dequeues whose replies were lost: the store may have acted on them. They are repeated as they were, under the same ticket,
//! until the store answers: so each waiter gets the leases that the lost reply gave it, or the store's word that it gave
//! none; the leases of those that have gone meanwhile are released (Q10, docs/decisions/0026).
//!
//! At most [`SLOTS`] calls are lost at once: each keeps its slot, and a new call needs a free one.

use super::batch::{DequeueBatch, LostBatch};
use super::group::{Waiter, WaiterKind};
use super::settle::Retry;
use super::{SLOTS, Waiting};
use std::sync::atomic::{AtomicU64, Ordering};
use tallystone_model::store::Ticket;
use tallystone_model::{Applied, Refusal};
use tokio::time::Instant;

/// The next number of this server, over all shards: so a lane that follows another one takes higher numbers. One is left out, for
/// [`Ticket::collects`].
fn next_number() -> u64 {
    const STEP: u64 = 2;
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(STEP, Ordering::Relaxed) + STEP
}

fn unknown(why: &str) -> Refusal {
    Refusal::Unavailable { applied: Applied::Unknown, why: why.to_owned() }
}

impl Waiting {
    /// A free slot's next ticket.
    pub(super) fn take_ticket(&mut self) -> Option<Ticket> {
        let slot = self.taken.iter().position(Option::is_none)?;
        let number = next_number();
        self.taken[slot] = Some(number);
        Some(Ticket { server: self.server, slot: slot as u8, first: number, number })
    }

    /// The call is over, and gives no lease any more: its slot is free.
    pub(super) fn end_ticket(&mut self, ticket: &Ticket) {
        self.taken[usize::from(ticket.slot)] = None;
        self.revoked.forget(self.taken.iter().copied().flatten().min());
    }

    pub(super) fn has_free_slot(&self) -> bool {
        self.taken.contains(&None)
    }

    /// All lost calls are to be repeated.
    pub(super) fn repeat_lost(&mut self) {
        self.lost.iter_mut().for_each(|lost| lost.due = true);
    }

    /// The next lost call to repeat. Without a free slot there is no other call: then a new waiter has one repeated at
    /// once.
    pub(super) fn next_repeat(&mut self, now: Instant) -> Option<DequeueBatch> {
        let wanted = !self.fresh.is_empty() && !self.has_free_slot();
        let at = self.lost.iter().position(|lost| lost.due || wanted)?;
        let mut batch = self.lost.swap_remove(at).batch;
        batch.repeat(next_number(), &self.subscriptions, now);
        Some(batch)
    }

    /// The requests of lost calls.
    pub(super) fn lost_requests(&self) -> usize {
        self.lost.iter().map(|lost| lost.batch.requests.len()).sum()
    }

    /// A call has no answer, or a refusal that says nothing of its earlier tries.
    pub(super) fn lose(&mut self, batch: DequeueBatch, refusal: &Refusal, now: Instant) -> Option<Retry> {
        let why = match refusal {
            Refusal::Unavailable { why, .. } => why.clone(),
            other => other.to_string(),
        };
        self.lost.push(LostBatch { batch, why, due: false });
        if self.stopping {
            // That was the last try: leases that it may have given end by themselves.
            self.expire_lost(None);
            self.drop_lost();
            return None;
        }
        self.expire_lost(Some(now));
        if self.lost.len() == SLOTS {
            self.refuse_fresh(refusal, now);
        }
        Some(Retry::Soon)
    }

    /// Answers the callers of lost calls whose wait has ended (`None`: all of them): the store may have acted.
    pub(super) fn expire_lost(&mut self, now: Option<Instant>) {
        let mut next: Option<Instant> = None;
        for LostBatch { batch, why, .. } in &mut self.lost {
            for waiter in &mut batch.waiters {
                let Some(Waiter { kind: WaiterKind::Caller(call), .. }) = waiter else { continue };
                let until = call.until;
                if now.is_some_and(|now| until > now) {
                    next = Some(next.map_or(until, |next| next.min(until)));
                } else if let Some(Waiter { kind: WaiterKind::Caller(call), .. }) = waiter.take() {
                    drop(call.reply.send(Err(unknown(why))));
                }
            }
        }
        if let Some(next) = next {
            self.expire_at = Some(self.expire_at.map_or(next, |at| at.min(next)));
        }
    }

    fn drop_lost(&mut self) {
        for LostBatch { batch, .. } in std::mem::take(&mut self.lost) {
            self.end_ticket(&batch.ticket);
            for request in &batch.requests {
                self.settled(&request.filters);
            }
        }
        self.forget_unused();
    }

    /// No slot is free, and the store does not answer: waiters without a request so far need not be sent to know that.
    fn refuse_fresh(&mut self, refusal: &Refusal, now: Instant) {
        let refusal = match refusal {
            Refusal::Unavailable { why, .. } => Refusal::Unavailable { applied: Applied::No, why: why.clone() },
            other => other.clone(),
        };
        for waiter in std::mem::take(&mut self.fresh) {
            let filters = waiter.filters(&self.subscriptions).to_vec();
            match &waiter.kind {
                WaiterKind::Caller(_) => self.hold(waiter, 0, now, Some(refusal.clone())),
                WaiterKind::Subscription(id)
                    if self.subscriptions.get(id).is_some_and(|subscription| !subscription.stopped) =>
                {
                    self.wait_on(waiter);
                }
                WaiterKind::Subscription(_) => {}
            }
            if let Some(group) = self.groups.get_mut(&filters) {
                group.refused = Some(refusal.clone());
            }
        }
    }
}
