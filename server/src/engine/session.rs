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

/// A subscription as its gRPC call sees it. When it is dropped, it releases the leases that the worker has not finished,
/// if the worker requested `release_on_close`. Leases that the worker never received are released in any case.
pub(crate) struct WorkSession {
    lanes: Arc<Lanes>,
    shard: Shard,
    id: SubscriptionId,
    /// Leases that the worker has received and not finished, by their fencing tokens.
    held: HashMap<MessageId, u64>,
    /// Whether they are released when the subscription ends; otherwise they stay until they expire.
    release_on_close: bool,
    /// Among the subscriptions of the queue's tenant.
    _place: Option<Taken>,
}

impl WorkSession {
    /// Subscribes in the lane of the shard.
    pub(super) fn open(
        lanes: &Arc<Lanes>,
        shard: Shard,
        request: DequeueRequest,
        release_on_close: bool,
        events: EventSender,
        place: Option<Taken>,
    ) -> Self {
        let id = SubscriptionId::next();
        lanes.send(&shard, Command::Subscribe(id, Box::new(Subscription::new(request, events))));
        WorkSession { lanes: lanes.clone(), shard, id, held: HashMap::new(), release_on_close, _place: place }
    }

    /// Sends a request to the lane.
    pub(crate) fn submit(&self, submission: Submission) {
        self.lanes.send(&self.shard, Command::Submit(self.id, Box::new(submission)));
    }

    /// Accepts no more leases from now on; results still arrive.
    pub(crate) fn stop(&self) {
        self.lanes.send(&self.shard, Command::StopSubscription(self.id));
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
        self.lanes.send(&self.shard, Command::Unsubscribe(self.id));
    }
}
