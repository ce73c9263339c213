//! The leases whose handlers run: when to extend each, and when to give it up. One table with one next wake-up replaces
//! a timer per message.

use crate::lease::{Lease, LeaseRef};
use std::collections::HashMap;
use std::time::Duration;
use tokio::task::{self, AbortHandle};
use tokio::time::Instant;

/// A lease is extended when a third of it has passed. Extensions that are due within a 24th of the lease travel in the
/// same request.
const EXTEND_AFTER: u32 = 3;
const EXTEND_TOGETHER: u32 = 24;
/// No lease is shorter. Of one that arrives with less, a part has passed on the way.
const LENGTH_MIN: Duration = Duration::from_secs(1);
/// So far ahead that it never comes.
const NEVER: Duration = Duration::from_secs(86_400 * 365);

/// The leases held, by the task that runs the handler.
pub(super) struct HeldLeases {
    leases: HashMap<task::Id, HeldLease>,
    /// Nothing is due before this time.
    next_due: Instant,
}

struct HeldLease {
    lease: LeaseRef,
    handler: AbortHandle,
    /// As it was requested, else as far as is known: a part may have passed on the way. Never more than its true length.
    length: Duration,
    /// By the store's clock.
    expires_at_ms: u64,
    /// By this machine's monotonic clock: the lease's length after it arrived, or after the last confirmed extension was
    /// requested.
    ends_at: Instant,
    /// `None` while a requested extension has no answer.
    extend_at: Option<Instant>,
}

/// The leases that are due.
#[derive(Default)]
pub(super) struct Due {
    /// Leases that have expired, and their handlers.
    pub(super) lost: Vec<(LeaseRef, AbortHandle)>,
    /// Leases to extend.
    pub(super) extend: Vec<(task::Id, LeaseRef)>,
}

impl HeldLeases {
    pub(super) fn new() -> Self {
        HeldLeases { leases: HashMap::new(), next_due: Instant::now() + NEVER }
    }

    /// When to call [`HeldLeases::take_due`] next. It may be early, never late.
    pub(super) fn next_due(&self) -> Instant {
        self.next_due
    }

    /// Makes the next call of [`HeldLeases::take_due`] check every lease.
    pub(super) fn check_now(&mut self) {
        self.next_due = Instant::now();
    }

    /// A lease has arrived. One of which a third has passed on the way is due to be extended at once.
    pub(super) fn insert(&mut self, handler: AbortHandle, lease: LeaseRef, term: Term, now: Instant) {
        let Term { length, whole: known, expires_at_ms } = term;
        let whole = known.unwrap_or(LENGTH_MIN).max(length);
        let extend_at = now + (whole / EXTEND_AFTER).saturating_sub(whole - length);
        self.next_due = self.next_due.min(extend_at);
        let (ends_at, extend_at) = (now + length, Some(extend_at));
        let length = known.unwrap_or(length).max(length);
        self.leases.insert(handler.id(), HeldLease { lease, handler, length, expires_at_ms, ends_at, extend_at });
    }

    /// Removes the lease of a task that has ended; `None`: it was lost before.
    pub(super) fn remove(&mut self, task: task::Id) -> Option<LeaseRef> {
        self.leases.remove(&task).map(|held| held.lease)
    }

    /// Gives a lease up. The caller aborts its handler.
    pub(super) fn lose(&mut self, task: task::Id) -> Option<(LeaseRef, AbortHandle)> {
        self.leases.remove(&task).map(|held| (held.lease, held.handler))
    }

    /// Gives up the lease that the server has revoked. The caller aborts its handler.
    pub(super) fn revoke(&mut self, revoked: &LeaseRef) -> Option<(LeaseRef, AbortHandle)> {
        let task = self.leases.iter().find(|(_, held)| held.lease == *revoked).map(|(task, _)| *task)?;
        self.lose(task)
    }

    /// Gives all leases up. The caller aborts their handlers.
    pub(super) fn lose_all(&mut self) -> Vec<(LeaseRef, AbortHandle)> {
        self.leases.drain().map(|(_, held)| (held.lease, held.handler)).collect()
    }

    /// The extension requested at `requested_at` was confirmed: the lease lives at least `length` from then.
    pub(super) fn extended(&mut self, task: task::Id, requested_at: Instant, expires_at_ms: u64) {
        if let Some(held) = self.leases.get_mut(&task) {
            // The end has moved by what had passed of the lease, which is less than its length. That says something only if the known
            // length is certainly too short. After a failover it includes the difference of two clocks: it makes no other length longer.
            if held.length < LENGTH_MIN {
                let moved = Duration::from_millis(expires_at_ms.saturating_sub(held.expires_at_ms));
                held.length = held.length.max(moved);
            }
            held.expires_at_ms = expires_at_ms;
            held.ends_at = requested_at + held.length;
            let extend_at = requested_at + held.length / EXTEND_AFTER;
            held.extend_at = Some(extend_at);
            self.next_due = self.next_due.min(extend_at);
        }
    }

    /// The extension had no answer, or the store was unavailable: it is due again at `retry_at`.
    pub(super) fn not_extended(&mut self, task: task::Id, retry_at: Instant) {
        if let Some(held) = self.leases.get_mut(&task) {
            held.extend_at = Some(retry_at);
            self.next_due = self.next_due.min(retry_at);
        }
    }

    /// Takes the leases that are due now; to be extended only while `connected`, since an extension needs a stream.
    pub(super) fn take_due(&mut self, now: Instant, connected: bool) -> Due {
        let mut due = Due::default();
        if now < self.next_due {
            return due;
        }
        let expired = self.leases.extract_if(|_, held| held.ends_at <= now);
        due.lost = expired.map(|(_, held)| (held.lease, held.handler)).collect();
        self.next_due = now + NEVER;
        for (task, held) in &mut self.leases {
            let soon = now + held.length / EXTEND_TOGETHER;
            if connected && held.extend_at.is_some_and(|extend_at| extend_at <= soon) {
                held.extend_at = None;
                due.extend.push((*task, held.lease.clone()));
            }
            let extend_at = held.extend_at.filter(|_| connected).unwrap_or(held.ends_at);
            self.next_due = self.next_due.min(extend_at).min(held.ends_at);
        }
        due
    }
}

/// How long a lease lasts.
#[derive(Clone, Copy)]
pub(super) struct Term {
    /// What is left of it when it arrives.
    length: Duration,
    /// Its whole length, if that is known.
    whole: Option<Duration>,
    expires_at_ms: u64,
}

impl Term {
    /// Of a lease that has arrived; `requested_ms`: the length that the worker requested.
    pub(super) fn of(lease: &Lease, requested_ms: Option<u64>) -> Term {
        let (length, expires_at_ms) = (Duration::from_millis(lease.left_ms), lease.lease_expires_at_ms);
        // Both times are those of the grant, so their difference is the whole length. A part of it may have passed since.
        let whole_ms = requested_ms.unwrap_or(expires_at_ms.saturating_sub(lease.leased_at_ms));
        Term { length, whole: Some(Duration::from_millis(whole_ms)), expires_at_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn lease(id: &str) -> LeaseRef {
        LeaseRef { id: id.into(), fencing_token: 1 }
    }

    fn term(length: Duration) -> Term {
        Term { length, whole: None, expires_at_ms: 1_000_000 + length.as_millis() as u64 }
    }

    /// Two leases, of 3 and of 30 seconds, that arrived at the returned time.
    fn two(tasks: &mut task::JoinSet<()>) -> (HeldLeases, Instant) {
        let (mut held, start) = (HeldLeases::new(), Instant::now());
        held.insert(tasks.spawn(std::future::pending()), lease("short"), term(3 * SECOND), start);
        held.insert(tasks.spawn(std::future::pending()), lease("long"), term(30 * SECOND), start);
        (held, start)
    }

    #[tokio::test]
    async fn q11_leases_are_extended_at_a_third() {
        let mut tasks = task::JoinSet::new();
        let (mut held, start) = two(&mut tasks);
        assert_eq!(held.next_due(), start + SECOND);
        assert!(held.take_due(start + SECOND / 2, true).extend.is_empty());
        let due = held.take_due(start + SECOND, true);
        assert_eq!((due.extend.len(), due.lost.len()), (1, 0));
        assert_eq!(due.extend[0].1, lease("short"));
        // It is requested once, and the end of the lease is still watched.
        assert_eq!(held.next_due(), start + 3 * SECOND);
        held.extended(due.extend[0].0, start + SECOND, 1_004_000);
        assert_eq!(held.next_due(), start + 2 * SECOND);
        assert_eq!(held.take_due(start + 2 * SECOND, true).extend.len(), 1);
    }

    #[tokio::test]
    async fn q11_a_lease_of_which_little_is_left_is_extended_at_once_and_then_at_a_third_of_its_length() {
        let mut tasks: task::JoinSet<()> = task::JoinSet::new();
        let (mut held, start) = (HeldLeases::new(), Instant::now());
        // Half a second is left of a lease of 30 s, and half of one whose length was requested.
        held.insert(tasks.spawn(std::future::pending()), lease("least"), term(SECOND / 2), start);
        let half = Term { whole: Some(30 * SECOND), ..term(15 * SECOND) };
        held.insert(tasks.spawn(std::future::pending()), lease("half"), half, start);
        // Of this one a tenth has passed: it is due when a third has.
        let most = Term { whole: Some(30 * SECOND), ..term(27 * SECOND) };
        held.insert(tasks.spawn(std::future::pending()), lease("most"), most, start);
        let mut due = held.take_due(start, true).extend;
        due.sort_by_key(|(_, lease)| lease.id.clone());
        assert_eq!(due.iter().map(|(_, lease)| lease.clone()).collect::<Vec<_>>(), [lease("half"), lease("least")]);
        // The store moves each end to 30 s from now.
        due.iter().for_each(|(task, _)| held.extended(*task, start, 1_030_000));
        assert!(held.take_due(start + SECOND, true).extend.is_empty());
        assert_eq!(held.next_due(), start + 7 * SECOND);
        // The end of the first moved by 29.5 s: it lasts as long at least.
        let mut lost = |at| held.take_due(start + at, false).lost.into_iter().map(|(lost, _)| lost).collect::<Vec<_>>();
        assert_eq!(lost(26 * SECOND), []);
        assert_eq!(lost(27 * SECOND), [lease("most")]);
        assert_eq!(lost(29 * SECOND + SECOND / 2), [lease("least")]);
        assert_eq!(lost(30 * SECOND), [lease("half")]);
    }

    #[tokio::test]
    async fn q11_a_clock_that_is_ahead_makes_no_lease_longer() {
        let mut tasks = task::JoinSet::new();
        let (mut held, start) = two(&mut tasks);
        let due = held.take_due(start + SECOND, true);
        // Since a failover the store's clock is 8 s ahead. The new end is 3 s after its time.
        held.extended(due.extend[0].0, start + SECOND, 1_000_000 + 1_000 + 8_000 + 3_000);
        let mut lost = |at| held.take_due(start + at, false).lost.into_iter().map(|(lost, _)| lost).collect::<Vec<_>>();
        assert_eq!(lost(4 * SECOND - Duration::from_millis(1)), []);
        assert_eq!(lost(4 * SECOND), [lease("short")]);
    }

    #[tokio::test]
    async fn q11_without_a_stream_a_lease_ends_by_the_local_clock() {
        let mut tasks = task::JoinSet::new();
        let (mut held, start) = two(&mut tasks);
        let due = held.take_due(start + 2 * SECOND, false);
        assert_eq!((due.extend.len(), due.lost.len()), (0, 0));
        assert_eq!(held.next_due(), start + 3 * SECOND);
        let due = held.take_due(start + 3 * SECOND, false);
        assert_eq!(due.lost.iter().map(|(lost, _)| lost.clone()).collect::<Vec<_>>(), [lease("short")]);
        assert_eq!(held.next_due(), start + 30 * SECOND);
        assert!(held.remove(due.lost[0].1.id()).is_none());
    }
}
