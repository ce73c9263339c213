//! What happens between the wire and the store: calls of many callers combine, those who find nothing wait, long
//! verbs go in bounded steps. One file per verb where there is something to decide.
//!
//! No gRPC type comes in here, and no Redis: the engine speaks the domain and works on any [`Store`].

pub(crate) mod gather;
pub(crate) mod granted;
pub(crate) mod lanes;
pub(crate) mod work;

mod flush;
mod lane;
mod purge;
mod waiting;

#[cfg(test)]
mod tests;

pub(crate) use waiting::Waiter;
pub(crate) use work::StreamId;

use crate::config::QueueTemplates;
use crate::health::StoreHealth;
use crate::metrics::Metrics;
use crate::sweeper::Schedule;
use gather::{Call, Reply};
use granted::Granted;
use lanes::Lanes;
use std::sync::Arc;
use tallystone_model::message::Enqueued;
use tallystone_model::store::{
    Cancellation, DequeueRequest, Extended, Extension, Items, LeaseRef, Release, Transition,
};
use tallystone_model::{Lease, NewMessage, QueueName, Refusal, Shard, Store};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use work::{Stream, Submission, WorkSession};

/// What a lane is asked to do.
pub(crate) enum Command {
    /// Q10, Q12.
    Enqueue(Call<NewMessage, Enqueued>),
    /// Q10, Q11.
    Complete(Call<LeaseRef, Transition>),
    /// Q10, Q11.
    Release(Call<Release, Transition>),
    /// Q10, Q11.
    Extend(Call<Extension, Extended>),
    /// Q10, Q11.
    Cancel(Call<Cancellation, Transition>),
    /// Q8, Q18.
    Dequeue(Box<Waiter>),
    /// A Work stream has begun.
    OpenStream(StreamId, Box<Stream>),
    /// One request of a Work stream.
    Submit(StreamId, Box<Submission>),
    /// A Work stream wants no more leases.
    StopStream(StreamId),
    /// A Work stream has ended.
    CloseStream(StreamId),
    /// Something may have become runnable by other ways than this lane.
    Wake,
}

/// What the lanes and the verbs share.
pub(crate) struct Context<S> {
    pub(crate) store: Arc<S>,
    pub(crate) templates: QueueTemplates,
    pub(crate) sweeper: Arc<Schedule>,
    pub(crate) health: StoreHealth,
    pub(crate) metrics: Arc<Metrics>,
    /// The server stops.
    pub(crate) stopping: CancellationToken,
}

/// The engine of one server.
pub(crate) struct Engine<S> {
    pub(crate) context: Arc<Context<S>>,
    pub(crate) lanes: Arc<Lanes>,
    tasks: TaskTracker,
}

impl<S: Store> Engine<S> {
    /// An engine on a store; the store's tells reach its lanes and its sweeper.
    pub(crate) fn new(context: Context<S>) -> Arc<Self> {
        let context = Arc::new(context);
        let tasks = TaskTracker::new();
        let lanes = Lanes::new({
            let (context, tasks) = (context.clone(), tasks.clone());
            move |lanes, shard, commands| drop(tasks.spawn(lane::run(context.clone(), lanes, shard, commands)))
        });
        let (told_lanes, told_sweeper) = (Arc::downgrade(&lanes), context.sweeper.clone());
        context.store.on_ready(Box::new(move |shard| {
            if let Some(lanes) = told_lanes.upgrade() {
                lanes.wake(shard);
            }
            told_sweeper.touch(shard);
        }));
        Arc::new(Engine { context, lanes, tasks })
    }

    /// Waits until the lanes have sent everything and answered everyone; [`Context::stopping`] must be set.
    pub(crate) async fn drained(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Adds messages (Q3); `bytes` is their encoded size.
    pub(crate) async fn enqueue(&self, queue: &QueueName, items: Vec<NewMessage>, bytes: usize) -> Items<Enqueued> {
        let call = |reply| Command::Enqueue(Call { items, bytes, reply });
        self.through_lane(queue, call).await
    }

    /// Ends leases with success.
    pub(crate) async fn complete(&self, queue: &QueueName, items: Vec<LeaseRef>) -> Items<Transition> {
        self.through_lane(queue, |reply| Command::Complete(Call { items, bytes: 0, reply })).await
    }

    /// Gives leases back.
    pub(crate) async fn release(&self, queue: &QueueName, items: Vec<Release>) -> Items<Transition> {
        self.through_lane(queue, |reply| Command::Release(Call { items, bytes: 0, reply })).await
    }

    /// Makes leases longer.
    pub(crate) async fn extend_lease(&self, queue: &QueueName, items: Vec<Extension>) -> Items<Extended> {
        self.through_lane(queue, |reply| Command::Extend(Call { items, bytes: 0, reply })).await
    }

    /// Takes messages out.
    pub(crate) async fn cancel(&self, queue: &QueueName, items: Vec<Cancellation>) -> Items<Transition> {
        self.through_lane(queue, |reply| Command::Cancel(Call { items, bytes: 0, reply })).await
    }

    /// Leases messages, waiting for the first until `until` (Q8, Q18).
    ///
    /// A caller that goes before its request is in the store leases nothing. If it goes later, its leases are
    /// released at once; with a request id they stay, for the retry that asks for them, and lapse without one.
    pub(crate) async fn dequeue(
        &self,
        queue: &QueueName,
        request: DequeueRequest,
        until: Instant,
    ) -> Result<Vec<Lease>, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.lanes.send(&shard(queue), Command::Dequeue(Box::new(Waiter { request, until, reply })));
        answer.await.unwrap_or_else(|_| Err(lane_failed())).map(Granted::take)
    }

    /// Opens a Work stream; its request's limit is not used.
    pub(crate) fn work(&self, queue: &QueueName, request: DequeueRequest, release_on_close: bool) -> WorkSession {
        WorkSession::open(&self.lanes, shard(queue), request, release_on_close)
    }

    async fn through_lane<O>(&self, queue: &QueueName, command: impl FnOnce(Reply<O>) -> Command) -> Items<O> {
        let (reply, answer) = oneshot::channel();
        self.lanes.send(&shard(queue), command(Reply::Caller(reply)));
        answer.await.unwrap_or_else(|_| Err(lane_failed()))
    }
}

/// The shard of a queue: every queue has one, until queue sharding comes and [`Shard::route`] is asked per message.
pub(crate) fn shard(queue: &QueueName) -> Shard {
    Shard::first(queue)
}

/// The task of a lane ended before it answered: a defect, logged by the panic itself.
fn lane_failed() -> Refusal {
    Refusal::Internal("the lane has ended".to_owned())
}
