//! A subscription as its gRPC call sees it.

use super::call::SubscriptionId;
use super::command::Command;
use super::granted::LeaseReturn;
use super::lanes::Lanes;
use super::subscription::{EventSender, Submission, Subscription};
use crate::tenants::Taken;
use std::collections::HashMap;
use std::sync::Arc;
use tallystone_model::store::{DequeueRequest, LeaseRef};
use tallystone_model::{Lease, MessageId, Shard};
use tokio::sync::OwnedSemaphorePermit;

/// A subscription as its gRPC call sees it. When it is dropped, it releases the leases that the worker has not finished,
/// if the worker requested `release_on_close`. Leases that the worker never received are released in any case.
pub(crate) struct WorkSession {
    lanes: Arc<Lanes>,
    shard: Shard,
    id: SubscriptionId,
    /// Until its first request.
    waiting: Option<Box<Subscription>>,
    /// Leases that the worker has received and not finished, by their fencing tokens.
    held: HashMap<MessageId, u64>,
    /// Whether they are released when the subscription ends; otherwise they stay until they expire.
    release_on_close: bool,
    _places: SessionPlaces,
}

/// The places of a subscription, free again when it ends.
pub(super) struct SessionPlaces {
    /// Among all of this server.
    pub(super) _of_server: OwnedSemaphorePermit,
    /// Among those of the queue's tenant.
    pub(super) _of_tenant: Option<Taken>,
}

impl WorkSession {
    /// Subscribes to the shard. Its lane gets the subscription with its first request: the lane of a queue that no worker
    /// uses, or that does not exist, is not started.
    pub(super) fn open(
        lanes: &Arc<Lanes>,
        shard: Shard,
        request: DequeueRequest,
        release_on_close: bool,
        events: EventSender,
        places: SessionPlaces,
    ) -> Self {
        let (id, waiting) = (SubscriptionId::next(), Some(Box::new(Subscription::new(request, events))));
        let (lanes, held) = (lanes.clone(), HashMap::new());
        WorkSession { lanes, shard, id, waiting, held, release_on_close, _places: places }
    }

    /// Sends a request to the lane.
    pub(crate) fn submit(&mut self, submission: Submission) {
        if let Some(subscription) = self.waiting.take() {
            self.lanes.send(&self.shard, Command::Subscribe(self.id, subscription));
        }
        self.lanes.send(&self.shard, Command::Submit(self.id, Box::new(submission)));
    }

    /// Accepts no more leases from now on; results still arrive. Nothing is submitted any more.
    pub(crate) fn stop(&self) {
        if self.waiting.is_none() {
            self.lanes.send(&self.shard, Command::StopSubscription(self.id));
        }
    }

    /// Records that the lease is being sent to the worker.
    pub(crate) fn handed_over(&mut self, lease: &Lease) {
        self.held.insert(lease.id.clone(), lease.fencing_token);
    }

    /// Releases leases that were not sent to the worker.
    pub(crate) fn give_back(&self, leases: impl IntoIterator<Item = Lease>) {
        let leases = leases.into_iter().map(|lease| LeaseRef { id: lease.id, fencing_token: lease.fencing_token });
        self.lanes.give_back(&self.shard, leases.collect(), "stream closed");
    }

    /// Records that the worker has finished this lease, or has lost it.
    pub(crate) fn finished(&mut self, lease: &LeaseRef) {
        if self.holds(lease) {
            self.held.remove(&lease.id);
        }
    }

    /// Whether the worker has received this lease, and not finished it.
    pub(crate) fn holds(&self, lease: &LeaseRef) -> bool {
        self.held.get(&lease.id) == Some(&lease.fencing_token)
    }
}

impl Drop for WorkSession {
    fn drop(&mut self) {
        // The lane executes this after what the worker has submitted: a Complete that was sent takes precedence.
        if self.release_on_close {
            let held = std::mem::take(&mut self.held);
            let leases = held.into_iter().map(|(id, fencing_token)| LeaseRef { id, fencing_token });
            self.lanes.give_back(&self.shard, leases.collect(), "stream closed");
        }
        if self.waiting.is_none() {
            self.lanes.send(&self.shard, Command::Unsubscribe(self.id));
        }
    }
}
