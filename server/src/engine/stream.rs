//! A Work stream as its lane sees it.

use super::granted::Granted;
use tallystone_model::Refusal;
use tallystone_model::store::{Completion, DequeueRequest, Extended, Extension, LeaseRef, Release, Transition};
use tokio::sync::mpsc;

/// One request of a Work stream. All of it reaches the store in one flush.
#[derive(Default)]
pub(crate) struct Submission {
    /// The number of further leases that the worker accepts.
    pub(crate) credits: usize,
    /// Leases to complete.
    pub(crate) complete: Vec<Completion>,
    /// Leases to release.
    pub(crate) release: Vec<Release>,
    /// Leases to extend.
    pub(crate) extend: Vec<Extension>,
}

/// The results of one flush for a stream.
#[derive(Default)]
pub(crate) struct WorkEvent {
    /// New leases.
    pub(crate) leases: Option<Granted>,
    /// The results of Complete, in the order of submission.
    pub(crate) completed: Vec<Result<Transition, Refusal>>,
    /// The same of Release.
    pub(crate) released: Vec<Result<Transition, Refusal>>,
    /// The same of ExtendLease.
    pub(crate) extended: Vec<Result<Extended, Refusal>>,
    /// Leases of this shard, of this stream or another, that a Cancel with force has ended.
    pub(crate) revoked: Vec<LeaseRef>,
    /// Why the stream gets no more leases.
    pub(crate) end: Option<Refusal>,
}

/// A Work stream as its lane sees it: a waiter that accepts a number of leases.
pub(crate) struct Stream {
    /// What it requests; `credits` stands for its limit.
    pub(super) request: DequeueRequest,
    /// Leases that it accepts, without those that are requested from the store at the moment.
    pub(super) credits: usize,
    /// It is in a list of waiters.
    pub(super) queued: bool,
    /// It accepts no more leases.
    pub(super) stopped: bool,
    /// The results of the current flush so far.
    event: Option<Box<WorkEvent>>,
    events: mpsc::UnboundedSender<Box<WorkEvent>>,
}

impl Stream {
    /// A stream without credits; `events` reach its session.
    pub(super) fn new(request: DequeueRequest, events: mpsc::UnboundedSender<Box<WorkEvent>>) -> Self {
        Stream { request, credits: 0, queued: false, stopped: false, event: None, events }
    }

    /// The results of the current flush, to be added to; [`Stream::send`] sends them.
    pub(super) fn event(&mut self) -> &mut WorkEvent {
        self.event.get_or_insert_default()
    }

    /// Sends the session the results of the flush. If the session has ended, [`Granted`] releases its leases.
    pub(super) fn send(&mut self) {
        if let Some(event) = self.event.take() {
            drop(self.events.send(event));
        }
    }
}
