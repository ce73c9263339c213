//! Revocations that may come before the reply that gives their lease (Q23): the store publishes them on another connection, and the
//! reply also waits for the other calls of its flush, and for earlier flushes. So each is kept until every dequeue that was under
//! way has been settled: the lease of a later one is a later lease.

use std::collections::HashMap;
use tallystone_model::store::LeaseRef;
use tallystone_model::{Lease, MessageId};

/// The most revocations that a lane keeps: as many as a purge of running messages brings while a dequeue is under way. Beyond, each lease
/// that these dequeues give to a subscription counts as revoked.
const REVOKED_MAX: usize = 1_024;

/// The revocations of one lane.
#[derive(Default)]
pub(super) struct Revoked {
    /// By fencing token, which no other lease of the queue has. The number: the ticket of the last dequeue that may give it.
    leases: HashMap<u64, (MessageId, u64)>,
    /// There were too many: those of the dequeues up to this ticket are not all known.
    unknown_until: u64,
}

impl Revoked {
    /// Notes a revocation; `last`: the first ticket of the latest dequeue that is under way.
    pub(super) fn note(&mut self, lease: &LeaseRef, last: u64) {
        match self.leases.len() < REVOKED_MAX {
            true => drop(self.leases.insert(lease.fencing_token, (lease.id.clone(), last))),
            false => self.unknown_until = self.unknown_until.max(last),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// Whether this lease has been revoked, as far as is known.
    pub(super) fn has(&self, lease: &Lease) -> bool {
        self.leases.get(&lease.fencing_token).is_some_and(|(id, _)| *id == lease.id)
    }

    /// Whether a lease of the dequeue with this first ticket may have been revoked although it is not known.
    pub(super) fn is_unknown_of(&self, first: u64) -> bool {
        first <= self.unknown_until
    }

    /// Forgets what no dequeue can give any more; `first`: the first ticket of the earliest that is under way.
    pub(super) fn forget(&mut self, first: Option<u64>) {
        if self.leases.is_empty() {
            return;
        }
        match first {
            Some(first) => self.leases.retain(|_, (_, last)| *last >= first),
            None => self.leases.clear(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(token: u64) -> LeaseRef {
        LeaseRef { id: MessageId::parse("id", format!("m{token}")).unwrap(), fencing_token: token }
    }

    #[test]
    fn q23_a_revocation_is_kept_while_a_dequeue_may_give_its_lease() {
        let mut revoked = Revoked::default();
        revoked.note(&lease(1), 2);
        revoked.note(&lease(2), 4);
        revoked.forget(Some(2));
        assert_eq!(revoked.leases.len(), 2);
        revoked.forget(Some(4));
        assert_eq!(revoked.leases.keys().collect::<Vec<_>>(), [&2]);
        revoked.forget(None);
        assert!(revoked.leases.is_empty() && !revoked.is_unknown_of(2));
    }

    #[test]
    fn q23_beyond_the_bound_the_leases_of_the_dequeues_under_way_are_in_doubt() {
        let mut revoked = Revoked::default();
        (0..REVOKED_MAX as u64 + 1).for_each(|token| revoked.note(&lease(token), 6));
        assert_eq!(revoked.leases.len(), REVOKED_MAX);
        assert_eq!([4, 6, 8].map(|first| revoked.is_unknown_of(first)), [true, true, false]);
    }
}
