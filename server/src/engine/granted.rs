//! Leases between the store and their caller: dropped on the way, they are released.

use std::sync::Arc;
use std::time::Duration;
use tallystone_model::store::LeaseRef;
use tallystone_model::{Lease, Shard};
use tokio::time::Instant;

/// Of a lease that was requested from the store less than this ago nothing is taken: the way to a client may take as long.
const AGE_MIN: Duration = Duration::from_millis(100);

/// Takes from a lease the time since it was requested from the store: its script may have been executed then. Returns whether anything is
/// left of it.
pub(crate) fn is_left(lease: &mut Lease, requested_at: Instant, now: Instant) -> bool {
    let age = now.saturating_duration_since(requested_at);
    age < AGE_MIN || lease.spend(age)
}

/// Releases leases that no caller took.
pub(crate) trait LeaseReturn: Send + Sync {
    /// Releases leases at once, without waiting for the result: they were no attempts. If the store does not answer, they expire.
    fn give_back(&self, shard: &Shard, leases: Vec<LeaseRef>, reason: &'static str);
}

/// A guard of leases: unless the caller takes them, they are released when it is dropped. Whatever happens to the
/// caller between the store's reply and its own, no message stays leased without a worker.
pub(crate) struct Granted {
    leases: Vec<Lease>,
    /// When this server requested them from the store: they run from then on at the earliest.
    pub(crate) requested_at: Instant,
    /// `None`: dropped leases are not released.
    returns: Option<(Arc<dyn LeaseReturn>, Shard)>,
}

impl Granted {
    /// Leases that are released if they are not taken.
    pub(super) fn returning(
        leases: Vec<Lease>,
        requested_at: Instant,
        returns: Arc<dyn LeaseReturn>,
        shard: &Shard,
    ) -> Self {
        let returns = (!leases.is_empty()).then(|| (returns, shard.clone()));
        Granted { leases, requested_at, returns }
    }

    /// Leases that stay with their request id: a retry of the call gets them, and without a retry they expire (Q10).
    pub(super) fn kept(leases: Vec<Lease>, requested_at: Instant) -> Self {
        Granted { leases, requested_at, returns: None }
    }

    /// No leases: nothing was runnable.
    pub(super) fn none() -> Self {
        Granted::kept(Vec::new(), Instant::now())
    }

    /// Takes the leases. From here on the caller must release them.
    pub(crate) fn take(mut self) -> Vec<Lease> {
        self.returns = None;
        std::mem::take(&mut self.leases)
    }

    /// The number of leases.
    pub(crate) fn len(&self) -> usize {
        self.leases.len()
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        if let Some((returns, shard)) = self.returns.take() {
            returns.give_back(&shard, self.leases.iter().map(LeaseRef::from).collect(), "caller gone");
        }
    }
}
