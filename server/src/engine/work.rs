//! One Work stream, as its lane sees it and as its session holds it.

use super::Command;
use super::gather::{Call, Reply};
use super::granted::{Granted, give_back};
use super::lanes::Lanes;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tallystone_model::store::{DequeueRequest, Extended, Extension, LeaseRef, Release, Transition};
use tallystone_model::{Lease, MessageId, Refusal, Shard};
use tokio::sync::mpsc;

/// Tells the Work streams of this server apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StreamId(u64);

impl StreamId {
    fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        StreamId(LAST.fetch_add(1, Ordering::Relaxed))
    }
}

/// What one request of the stream asks for: it reaches the store in one flush.
#[derive(Default)]
pub(crate) struct Submission {
    /// So many more leases.
    pub(crate) credits: usize,
    /// Leases ended with success.
    pub(crate) complete: Vec<LeaseRef>,
    /// Leases given back.
    pub(crate) release: Vec<Release>,
    /// Leases made longer.
    pub(crate) extend: Vec<Extension>,
}

/// What one flush brought for the stream.
#[derive(Default)]
pub(crate) struct WorkEvent {
    /// Leases, given back if nobody takes them.
    pub(crate) leases: Option<Granted>,
    /// Results, in the order of submission.
    pub(crate) completed: Vec<Result<Transition, Refusal>>,
    /// The same.
    pub(crate) released: Vec<Result<Transition, Refusal>>,
    /// The same.
    pub(crate) extended: Vec<Result<Extended, Refusal>>,
    /// There will be no more leases, and why.
    pub(crate) end: Option<Refusal>,
}

/// The stream in its lane: a waiter with a count.
pub(crate) struct Stream {
    /// What it asks for; the limit is its credits.
    pub(super) request: DequeueRequest,
    /// Leases it may have, those asked for in the store left out.
    pub(super) credits: usize,
    /// It is in the line of askers.
    pub(super) queued: bool,
    /// It gets no more leases.
    pub(super) stopped: bool,
    /// What the present flush has brought so far; `None`: nothing.
    event: Option<Box<WorkEvent>>,
    events: mpsc::UnboundedSender<Box<WorkEvent>>,
}

impl Stream {
    /// What the present flush has brought, to add to; the lane sends it with [`Stream::send`].
    pub(super) fn event(&mut self) -> &mut WorkEvent {
        self.event.get_or_insert_default()
    }

    /// Hands over what the flush has brought. A session that has gone leaves its leases to [`Granted`].
    pub(super) fn send(&mut self) {
        if let Some(event) = self.event.take() {
            drop(self.events.send(event));
        }
    }
}

/// The stream as its session holds it. Dropped, it gives back what the worker has not finished, if the worker asked
/// for that; leases that were never handed over go back in any case.
pub(crate) struct WorkSession {
    lanes: Arc<Lanes>,
    shard: Shard,
    id: StreamId,
    events: mpsc::UnboundedReceiver<Box<WorkEvent>>,
    /// Leases handed over and not finished; `None`: they lapse.
    held: Option<HashMap<MessageId, u64>>,
}

impl WorkSession {
    /// Opens a stream in the lane of its shard.
    pub(super) fn open(lanes: &Arc<Lanes>, shard: Shard, request: DequeueRequest, release_on_close: bool) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let id = StreamId::next();
        let stream = Stream { request, credits: 0, queued: false, stopped: false, event: None, events: sender };
        lanes.send(&shard, Command::OpenStream(id, Box::new(stream)));
        let held = release_on_close.then(HashMap::new);
        WorkSession { lanes: lanes.clone(), shard, id, events, held }
    }

    /// Sends a request's wishes to the lane.
    pub(crate) fn submit(&self, submission: Submission) {
        self.lanes.send(&self.shard, Command::Submit(self.id, Box::new(submission)));
    }

    /// No more leases from here on; results still come.
    pub(crate) fn stop(&self) {
        self.lanes.send(&self.shard, Command::StopStream(self.id));
    }

    /// The next event. Cancel safe.
    pub(crate) async fn next(&mut self) -> WorkEvent {
        match self.events.recv().await {
            Some(event) => *event,
            // The lane keeps the stream until the session closes it; its task must have failed.
            None => WorkEvent { end: Some(Refusal::Internal("the lane has ended".to_owned())), ..WorkEvent::default() },
        }
    }

    /// A further event that is there already.
    pub(crate) fn try_next(&mut self) -> Option<WorkEvent> {
        self.events.try_recv().ok().map(|event| *event)
    }

    /// The lease is on its way to the worker.
    pub(crate) fn handed_over(&mut self, lease: &Lease) {
        if let Some(held) = &mut self.held {
            held.insert(lease.id.clone(), lease.fencing_token);
        }
    }

    /// Gives back leases that were not handed over.
    pub(crate) fn give_back(&self, leases: impl IntoIterator<Item = Lease>) {
        let leases = leases.into_iter().map(|lease| LeaseRef { id: lease.id, fencing_token: lease.fencing_token });
        give_back(&self.lanes, &self.shard, leases, "stream closed");
    }

    /// The worker has finished with this lease, or has lost it.
    pub(crate) fn finished(&mut self, lease: &LeaseRef) {
        if let Some(held) = &mut self.held
            && held.get(&lease.id) == Some(&lease.fencing_token)
        {
            held.remove(&lease.id);
        }
    }
}

impl Drop for WorkSession {
    fn drop(&mut self) {
        // Behind what the worker has submitted, so that a Complete on its way wins over the release.
        let held = self.held.take().unwrap_or_default();
        let leases = held.into_iter().map(|(id, fencing_token)| LeaseRef { id, fencing_token });
        give_back(&self.lanes, &self.shard, leases, "stream closed");
        self.lanes.send(&self.shard, Command::CloseStream(self.id));
    }
}

/// The parts of a submission, as calls of their verbs.
pub(super) fn call<I, O>(id: StreamId, items: Vec<I>) -> Option<Call<I, O>> {
    (!items.is_empty()).then_some(Call { items, bytes: 0, reply: Reply::Stream(id) })
}
