//! A worker's subscription to one queue, as its lane sees it, and the events by which the lane answers. A Work stream has
//! one subscription or more.

use super::granted::Granted;
use super::places::WaiterPlace;
use tallystone_model::Refusal;
use tallystone_model::store::{Completion, DequeueRequest, Extended, Extension, LeaseRef, Release, Transition};
use tokio::sync::mpsc;

/// One request of a subscription. All of it reaches the store in one flush.
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
    /// Fencing tokens of leases that the subscription does not have any more. The session adds them.
    pub(crate) over: Vec<u64>,
}

impl Submission {
    /// Whether the lane has nothing to do for it.
    pub(crate) fn is_empty(&self) -> bool {
        let Submission { credits, complete, release, extend, over: _ } = self;
        *credits == 0 && complete.is_empty() && release.is_empty() && extend.is_empty()
    }
}

/// The results of one flush for a subscription.
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
    /// Leases that the subscription has got, and that a Cancel with force or a purge has ended.
    pub(crate) revoked: Vec<LeaseRef>,
    /// Why the subscription gets no more leases.
    pub(crate) end: Option<Refusal>,
}

/// What the lanes send to the subscriptions of one Work stream, each event with the number of its subscription.
pub(crate) struct WorkEvents {
    sender: mpsc::UnboundedSender<(u32, Box<WorkEvent>)>,
    receiver: mpsc::UnboundedReceiver<(u32, Box<WorkEvent>)>,
}

impl WorkEvents {
    /// Of a stream without subscriptions.
    pub(crate) fn new() -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        WorkEvents { sender, receiver }
    }

    /// The sender of a subscription that has this number.
    pub(crate) fn sender(&self, number: u32) -> EventSender {
        EventSender { number, sender: self.sender.clone() }
    }

    /// The next event. Cancel safe.
    pub(crate) async fn next(&mut self) -> (u32, WorkEvent) {
        match self.receiver.recv().await {
            Some((number, event)) => (number, *event),
            // Impossible: this has a sender.
            None => std::future::pending().await,
        }
    }

    /// The next event, if it has arrived already.
    pub(crate) fn try_next(&mut self) -> Option<(u32, WorkEvent)> {
        self.receiver.try_recv().ok().map(|(number, event)| (number, *event))
    }
}

/// Sends the events of one subscription.
pub(crate) struct EventSender {
    number: u32,
    sender: mpsc::UnboundedSender<(u32, Box<WorkEvent>)>,
}

impl EventSender {
    /// If the stream has ended, [`Granted`] releases the leases of the event.
    fn send(&self, event: Box<WorkEvent>) {
        drop(self.sender.send((self.number, event)));
    }
}

impl Drop for EventSender {
    fn drop(&mut self) {
        // The lane keeps a subscription until its session closes it, and then this event is ignored. Otherwise its task panicked.
        let end = Some(Refusal::Internal("the lane has ended".to_owned()));
        self.send(Box::new(WorkEvent { end, ..WorkEvent::default() }));
    }
}

/// A subscription as its lane sees it: a waiter that accepts a number of leases.
pub(crate) struct Subscription {
    /// What it requests; `credits` stands for its limit.
    pub(super) request: DequeueRequest,
    /// Leases that it accepts, without those that are requested from the store at the moment.
    pub(super) credits: usize,
    /// It is in a list of waiters.
    pub(super) queued: bool,
    /// It accepts no more leases.
    pub(super) stopped: bool,
    /// Among those that wait for its queue; `None`: it was refused.
    pub(super) place: Option<WaiterPlace>,
    /// The results of the current flush so far.
    event: Option<Box<WorkEvent>>,
    events: EventSender,
}

impl Subscription {
    /// A subscription without credits.
    pub(super) fn new(request: DequeueRequest, events: EventSender) -> Self {
        Subscription { request, credits: 0, queued: false, stopped: false, place: None, event: None, events }
    }

    /// The results of the current flush, to be added to; [`Subscription::send`] sends them.
    pub(super) fn event(&mut self) -> &mut WorkEvent {
        self.event.get_or_insert_default()
    }

    /// Sends the results of the flush.
    pub(super) fn send(&mut self) {
        if let Some(event) = self.event.take() {
            self.events.send(event);
        }
    }
}
