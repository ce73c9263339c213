//! A Work stream as its gRPC call sees it.

use super::call::StreamId;
use super::command::Command;
use super::granted::LeaseReturn;
use super::lanes::Lanes;
use super::stream::{Stream, Submission, WorkEvent};
use std::collections::HashMap;
use std::sync::Arc;
use tallystone_model::store::{DequeueRequest, LeaseRef};
use tallystone_model::{Lease, MessageId, Refusal, Shard};
use tokio::sync::mpsc;

/// A Work stream as its gRPC call sees it. When it is dropped, it releases the leases that the worker has not finished,
/// if the worker requested `release_on_close`. Leases that the worker never received are released in any case.
pub(crate) struct WorkSession {
    lanes: Arc<Lanes>,
    shard: Shard,
    id: StreamId,
    events: mpsc::UnboundedReceiver<Box<WorkEvent>>,
    /// Leases that the worker has received and not finished, by their fencing tokens.
    held: HashMap<MessageId, u64>,
    /// Whether they are released when the stream closes; otherwise they stay until they expire.
    release_on_close: bool,
}

impl WorkSession {
    /// Opens a stream in the lane of its shard.
    pub(super) fn open(lanes: &Arc<Lanes>, shard: Shard, request: DequeueRequest, release_on_close: bool) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let id = StreamId::next();
        lanes.send(&shard, Command::OpenStream(id, Box::new(Stream::new(request, sender))));
        WorkSession { lanes: lanes.clone(), shard, id, events, held: HashMap::new(), release_on_close }
    }

    /// Sends a request to the lane.
    pub(crate) fn submit(&self, submission: Submission) {
        self.lanes.send(&self.shard, Command::Submit(self.id, Box::new(submission)));
    }

    /// Accepts no more leases from now on; results still arrive.
    pub(crate) fn stop(&self) {
        self.lanes.send(&self.shard, Command::StopStream(self.id));
    }

    /// The next event. Cancel safe.
    pub(crate) async fn next(&mut self) -> WorkEvent {
        match self.events.recv().await {
            Some(event) => *event,
            // The lane keeps the stream until the session closes it: its task must have panicked.
            None => WorkEvent { end: Some(Refusal::Internal("the lane has ended".to_owned())), ..WorkEvent::default() },
        }
    }

    /// The next event, if it has arrived already.
    pub(crate) fn try_next(&mut self) -> Option<WorkEvent> {
        self.events.try_recv().ok().map(|event| *event)
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
        self.lanes.send(&self.shard, Command::CloseStream(self.id));
    }
}
