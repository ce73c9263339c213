//! The commands of a lane.

use super::call::{Call, SubscriptionId};
use super::granted::Granted;
use super::subscription::{Submission, Subscription};
use tallystone_model::message::Enqueued;
use tallystone_model::store::{
    Cancellation, Completion, DequeueRequest, Extended, Extension, LeaseRef, Release, Transition,
};
use tallystone_model::{NewMessage, Refusal};
use tallystone_serving::RoomPlace;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// One command to the lane of a queue shard.
pub(crate) enum Command {
    /// Q10, Q12.
    Enqueue(Call<NewMessage, Enqueued>),
    /// Q10, Q11.
    Complete(Call<Completion, Transition>),
    /// Q10, Q11.
    Release(Call<Release, Transition>),
    /// Q10, Q11.
    Extend(Call<Extension, Extended>),
    /// Q10, Q11.
    Cancel(Call<Cancellation, Transition>),
    /// Q8, Q18.
    Dequeue(Box<DequeueCall>),
    /// A subscription has opened.
    Subscribe(SubscriptionId, Box<Subscription>),
    /// One request of a subscription.
    Submit(SubscriptionId, Box<Submission>),
    /// A subscription accepts no more leases.
    StopSubscription(SubscriptionId),
    /// A subscription has closed.
    Unsubscribe(SubscriptionId),
    /// The caller of a call has disconnected before it had the results.
    CallerLeft(Verb),
    /// A change from outside this lane may have made messages runnable.
    Wake,
    /// A Cancel with force or a purge has ended this lease.
    Revoke(LeaseRef),
}

/// The unary calls that wait for the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Enqueue,
    Complete,
    Release,
    Extend,
    Cancel,
    Redrive,
    Dequeue,
}

/// A unary Dequeue.
pub(crate) struct DequeueCall {
    /// What it requests.
    pub(crate) request: DequeueRequest,
    /// The end of its wait. If that is past, the store still gets one request.
    pub(crate) until: Instant,
    /// Receives its leases.
    pub(crate) reply: oneshot::Sender<Result<Granted, Refusal>>,
    /// Its place, until it waits for messages.
    pub(crate) room: Option<RoomPlace>,
}
