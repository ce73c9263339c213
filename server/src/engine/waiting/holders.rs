//! Which subscription has which lease, so that a revocation is an event for it alone (Q23): with one for each subscription, those of a
//! purge would take the memory of so many events as there are messages times subscriptions.
//!
//! A lease enters when it is delivered. It leaves when it is revoked, when the session of its subscription says so with its next request, or
//! after the end of its subscription.

use crate::engine::call::SubscriptionId;
use std::collections::HashMap;
use tallystone_model::Lease;

/// With fewer leases than this, those of closed subscriptions stay.
const PRUNE_MIN: usize = 1_024;

/// The leases of the subscriptions of one lane.
pub(super) struct Holders {
    /// By fencing token, which no other lease of the queue has.
    leases: HashMap<u64, SubscriptionId>,
    /// With this number of leases, those of closed subscriptions are removed.
    prune_at: usize,
}

impl Default for Holders {
    fn default() -> Self {
        Holders { leases: HashMap::new(), prune_at: PRUNE_MIN }
    }
}

impl Holders {
    /// These leases are being delivered to the subscription.
    pub(super) fn add(&mut self, id: SubscriptionId, leases: &[Lease]) {
        self.leases.extend(leases.iter().map(|lease| (lease.fencing_token, id)));
    }

    /// The subscription that has this lease. It has it no more.
    pub(super) fn take(&mut self, fencing_token: u64) -> Option<SubscriptionId> {
        self.leases.remove(&fencing_token)
    }

    /// The subscription does not have these leases any more.
    pub(super) fn let_go(&mut self, id: SubscriptionId, fencing_tokens: &[u64]) {
        for fencing_token in fencing_tokens {
            if self.leases.get(fencing_token) == Some(&id) {
                self.leases.remove(fencing_token);
            }
        }
    }

    /// Removes the leases of closed subscriptions. Does so only when the number of leases has doubled, so its cost is amortized.
    pub(super) fn prune(&mut self, is_open: impl Fn(&SubscriptionId) -> bool) {
        if self.leases.len() < self.prune_at {
            return;
        }
        self.leases.retain(|_, id| is_open(id));
        self.prune_at = PRUNE_MIN.max(2 * self.leases.len());
        self.leases.shrink_to(self.prune_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q23_the_leases_of_closed_subscriptions_do_not_stay() {
        let [open, closed] = [SubscriptionId::next(), SubscriptionId::next()];
        let mut holders = Holders::default();
        let fill = |holders: &mut Holders, id, tokens: std::ops::Range<usize>| {
            holders.leases.extend(tokens.map(|token| (token as u64, id)));
        };
        fill(&mut holders, open, 0..10);
        fill(&mut holders, closed, 10..PRUNE_MIN - 1);
        holders.prune(|id| *id == open);
        assert_eq!(holders.leases.len(), PRUNE_MIN - 1, "they are few");
        fill(&mut holders, closed, PRUNE_MIN - 1..PRUNE_MIN);
        holders.prune(|id| *id == open);
        assert_eq!(holders.leases.len(), 10);
        holders.let_go(closed, &[0]);
        holders.let_go(open, &[0, 1]);
        assert_eq!((holders.take(0), holders.take(2), holders.take(2)), (None, Some(open), None));
        assert_eq!(holders.leases.len(), 7);
    }
}
