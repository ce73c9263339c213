//! The leases whose handlers run: when to extend each, and when to give it up. One table and one moment to look
//! at it again, rather than a timer per message.

use crate::lease::{Lease, LeaseRef};
use std::collections::HashMap;
use std::time::Duration;
use tokio::task::{self, AbortHandle};
use tokio::time::Instant;

/// A lease is extended when a third of it has passed; those due within this part of it go in the same request.
const EXTEND_AFTER: u32 = 3;
const EXTEND_TOGETHER: u32 = 24;
/// A time that never comes.
const NEVER: Duration = Duration::from_secs(86_400 * 365);

/// The leases held, by the task that runs the handler.
pub(super) struct Held {
    leases: HashMap<task::Id, HeldLease>,
    /// Nothing is due before.
    next: Instant,
}

struct HeldLease {
    lease: LeaseRef,
    handler: AbortHandle,
    length: Duration,
    /// By this machine's monotonic clock. Counted from when the lease arrived, or from when the last confirmed
    /// extension was asked for.
    ends_at: Instant,
    /// `None` while an extension is on its way.
    extend_at: Option<Instant>,
}

/// What is due.
#[derive(Default)]
pub(super) struct Due {
    /// Leases that have run out, and their handlers.
    pub(super) lost: Vec<(LeaseRef, AbortHandle)>,
    /// Leases to extend.
    pub(super) extend: Vec<(task::Id, LeaseRef)>,
}

impl Held {
    pub(super) fn new() -> Self {
        Held { leases: HashMap::new(), next: Instant::now() + NEVER }
    }

    /// When to call [`Held::due`] again; never late.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Look again now.
    pub(super) fn look_again(&mut self) {
        self.next = Instant::now();
    }

    pub(super) fn insert(&mut self, handler: AbortHandle, lease: LeaseRef, length: Duration, now: Instant) {
        let extend_at = now + length / EXTEND_AFTER;
        self.next = self.next.min(extend_at);
        let (ends_at, extend_at) = (now + length, Some(extend_at));
        self.leases.insert(handler.id(), HeldLease { lease, handler, length, ends_at, extend_at });
    }

    /// Takes the lease of a task that has ended; `None`: it was lost before.
    pub(super) fn remove(&mut self, task: task::Id) -> Option<LeaseRef> {
        self.leases.remove(&task).map(|held| held.lease)
    }

    /// Gives a lease up; its handler is to be aborted.
    pub(super) fn lose(&mut self, task: task::Id) -> Option<(LeaseRef, AbortHandle)> {
        self.leases.remove(&task).map(|held| (held.lease, held.handler))
    }

    /// Gives all leases up.
    pub(super) fn lose_all(&mut self) -> Vec<(LeaseRef, AbortHandle)> {
        self.leases.drain().map(|(_, held)| (held.lease, held.handler)).collect()
    }

    /// The extension asked for at `asked_at` was confirmed: the lease lives at least `length` from then.
    pub(super) fn extended(&mut self, task: task::Id, asked_at: Instant) {
        if let Some(held) = self.leases.get_mut(&task) {
            held.ends_at = asked_at + held.length;
            let extend_at = asked_at + held.length / EXTEND_AFTER;
            held.extend_at = Some(extend_at);
            self.next = self.next.min(extend_at);
        }
    }

    /// The extension was not answered, or answered with unavailable: ask again.
    pub(super) fn not_extended(&mut self, task: task::Id, ask_again: Instant) {
        if let Some(held) = self.leases.get_mut(&task) {
            held.extend_at = Some(ask_again);
            self.next = self.next.min(ask_again);
        }
    }

    /// What is due now. Extensions only while `connected`: without a stream there is nobody to ask.
    pub(super) fn due(&mut self, now: Instant, connected: bool) -> Due {
        let mut due = Due::default();
        if now < self.next {
            return due;
        }
        let expired = self.leases.extract_if(|_, held| held.ends_at <= now);
        due.lost = expired.map(|(_, held)| (held.lease, held.handler)).collect();
        self.next = now + NEVER;
        for (task, held) in &mut self.leases {
            let soon = now + held.length / EXTEND_TOGETHER;
            if connected && held.extend_at.is_some_and(|extend_at| extend_at <= soon) {
                held.extend_at = None;
                due.extend.push((*task, held.lease.clone()));
            }
            let extend_at = held.extend_at.filter(|_| connected).unwrap_or(held.ends_at);
            self.next = self.next.min(extend_at).min(held.ends_at);
        }
        due
    }
}

/// How long a lease is, by the two times of the store's clock that it carries.
pub(super) fn length(lease: &Lease) -> Duration {
    Duration::from_millis(lease.lease_expires_at_ms.saturating_sub(lease.leased_at_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn lease(id: &str) -> LeaseRef {
        LeaseRef { id: id.into(), fencing_token: 1 }
    }

    /// Two leases, of 3 and of 30 seconds, taken at the returned moment.
    fn two(tasks: &mut task::JoinSet<()>) -> (Held, Instant) {
        let (mut held, start) = (Held::new(), Instant::now());
        held.insert(tasks.spawn(std::future::pending()), lease("short"), 3 * SECOND, start);
        held.insert(tasks.spawn(std::future::pending()), lease("long"), 30 * SECOND, start);
        (held, start)
    }

    #[tokio::test]
    async fn q11_leases_are_extended_at_a_third() {
        let mut tasks = task::JoinSet::new();
        let (mut held, start) = two(&mut tasks);
        assert_eq!(held.next(), start + SECOND);
        assert!(held.due(start + SECOND / 2, true).extend.is_empty());
        let due = held.due(start + SECOND, true);
        assert_eq!((due.extend.len(), due.lost.len()), (1, 0));
        assert_eq!(due.extend[0].1, lease("short"));
        // On its way: not asked for twice, but the end of the lease is watched.
        assert_eq!(held.next(), start + 3 * SECOND);
        held.extended(due.extend[0].0, start + SECOND);
        assert_eq!(held.next(), start + 2 * SECOND);
        assert_eq!(held.due(start + 2 * SECOND, true).extend.len(), 1);
    }

    #[tokio::test]
    async fn q11_without_a_stream_a_lease_ends_by_the_local_clock() {
        let mut tasks = task::JoinSet::new();
        let (mut held, start) = two(&mut tasks);
        let due = held.due(start + 2 * SECOND, false);
        assert_eq!((due.extend.len(), due.lost.len()), (0, 0));
        assert_eq!(held.next(), start + 3 * SECOND);
        let due = held.due(start + 3 * SECOND, false);
        assert_eq!(due.lost.iter().map(|(lost, _)| lost.clone()).collect::<Vec<_>>(), [lease("short")]);
        assert_eq!(held.next(), start + 30 * SECOND);
        assert!(held.remove(due.lost[0].1.id()).is_none());
    }
}
