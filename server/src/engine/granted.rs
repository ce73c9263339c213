//! Leases on their way to whom they were leased for.

use super::Command;
use super::gather::{Call, Reply};
use super::lanes::Lanes;
use std::sync::Arc;
use tallystone_model::limits::BATCH_ITEMS_MAX;
use tallystone_model::store::{LeaseRef, Release};
use tallystone_model::{Lease, Shard};

/// Leases that go back to the queue at once, unless somebody takes them: whatever happens to the caller between the
/// store's answer and its own reply, no message stays leased to nobody.
pub(crate) struct Granted {
    leases: Vec<Lease>,
    /// `None`: nothing is given back.
    back: Option<(Arc<Lanes>, Shard)>,
}

impl Granted {
    /// Leases that go back when nobody takes them.
    pub(super) fn returning(leases: Vec<Lease>, lanes: &Arc<Lanes>, shard: &Shard) -> Self {
        let back = (!leases.is_empty()).then(|| (lanes.clone(), shard.clone()));
        Granted { leases, back }
    }

    /// Leases that stay with the request id they were asked for with: the retry of the call gets them, and without
    /// one they lapse (Q10).
    pub(super) fn kept(leases: Vec<Lease>) -> Self {
        Granted { leases, back: None }
    }

    /// Nothing was runnable.
    pub(super) fn none() -> Self {
        Granted::kept(Vec::new())
    }

    /// Takes the leases: from here on they are the taker's to give back.
    pub(crate) fn take(mut self) -> Vec<Lease> {
        self.back = None;
        std::mem::take(&mut self.leases)
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.leases.len()
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        if let Some((lanes, shard)) = self.back.take() {
            let leases =
                self.leases.drain(..).map(|lease| LeaseRef { id: lease.id, fencing_token: lease.fencing_token });
            give_back(&lanes, &shard, leases, "caller gone");
        }
    }
}

/// Releases leases at once; nobody waits for the answer. If the store is away they lapse.
pub(crate) fn give_back(
    lanes: &Arc<Lanes>,
    shard: &Shard,
    leases: impl IntoIterator<Item = LeaseRef>,
    reason: &'static str,
) {
    let mut releases =
        leases.into_iter().map(|lease| Release { lease, delay_ms: Some(0), reason: reason.to_owned() }).peekable();
    while releases.peek().is_some() {
        let items = releases.by_ref().take(BATCH_ITEMS_MAX).collect();
        lanes.send(shard, Command::Release(Call { items, bytes: 0, reply: Reply::Nobody }));
    }
}
