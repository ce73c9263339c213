//! Between the wire and the store: the engine combines the calls of many callers, holds callers that wait for messages,
//! and runs long verbs in bounded steps.
//!
//! What lives here: `lanes` and `lane` (one task for each queue shard), `call`, `gather`, `flush` and `steps` (combining),
//! `count` (metrics), `fair_queue` and `cost` (fair shares), `rooms` (what may wait), `waiting` and `granted`
//! (waiting callers and their leases), `subscription` and `session` (the two ends of a subscription), `purge`. What may not: gRPC types, and Redis. The engine
//! uses the types of the model and works on any [`Store`].

mod call;
mod command;
mod context;
mod cost;
mod count;
mod fair_queue;
mod flush;
mod gather;
mod granted;
mod lane;
mod lanes;
mod places;
mod purge;
mod rooms;
mod session;
mod steps;
mod subscription;
mod timers;
mod waiting;

#[cfg(test)]
mod fair_shares;
#[cfg(test)]
mod lost_replies;
#[cfg(test)]
mod new_queues;
#[cfg(test)]
mod overload;
#[cfg(test)]
mod quotas;
#[cfg(test)]
mod revocations;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use context::Context;
pub(crate) use fair_queue::FairQueue;
pub(crate) use granted::is_left;
pub(crate) use lanes::Lanes;
pub(crate) use places::WaitLimits;
pub(crate) use rooms::Rooms;
pub(crate) use session::WorkSession;
pub(crate) use subscription::{Submission, WorkEvent, WorkEvents};

use crate::tenants::Creating;
use call::{Call, Recipient};
use command::{Command, DequeueCall, Verb};
use gather::as_one;
use granted::{Granted, LeaseReturn};
use metrics::Counter;
use rooms::Leaving;
use session::SessionPlaces;
use std::sync::Arc;
use subscription::EventSender;
use tallystone_model::message::Enqueued;
use tallystone_model::store::{
    Cancellation, Completion, DequeueRequest, Extended, Extension, Items, LeaseRef, Queue, Release, Transition,
};
use tallystone_model::{Lease, MessageId, NewMessage, QueueConfig, QueueName, QueuePatch, Refusal, Shard, Store};
use tallystone_serving::RoomPlace;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

/// The engine of one server.
pub(crate) struct Engine<S> {
    pub(crate) context: Arc<Context<S>>,
    pub(crate) lanes: Arc<Lanes>,
    /// The places of subscriptions that are free.
    subscriptions: Arc<Semaphore>,
    /// The places of waiting Dequeues that are free.
    dequeues: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl<S: Store> Engine<S> {
    /// An engine on a store. The store notifies its lanes and its sweeper.
    pub(crate) fn new(context: Context<S>) -> Arc<Self> {
        let context = Arc::new(context);
        let tasks = TaskTracker::new();
        let lanes = Lanes::new({
            let (context, tasks) = (context.clone(), tasks.clone());
            move |lanes, shard, commands| drop(tasks.spawn(lane::run(context.clone(), lanes, shard, commands)))
        });
        let (weak_lanes, sweeper) = (Arc::downgrade(&lanes), context.sweeper.clone());
        context.store.on_ready(Box::new(move |shard| {
            if let Some(lanes) = weak_lanes.upgrade() {
                lanes.wake_queue(shard);
            }
            sweeper.touch(shard);
        }));
        let weak_lanes = Arc::downgrade(&lanes);
        context.store.on_revoked(Box::new(move |shard, lease| {
            if let Some(lanes) = weak_lanes.upgrade() {
                lanes.revoke(shard, lease);
            }
        }));
        let fair_queue = context.fair_queue.clone();
        context.store.on_light_flow(Box::new(move |flow| fair_queue.note_light(flow)));
        let subscriptions = Arc::new(Semaphore::new(context.wait_limits.subscriptions_max as usize));
        let dequeues = Arc::new(Semaphore::new(context.wait_limits.dequeues_max as usize));
        Arc::new(Engine { context, lanes, subscriptions, dequeues, tasks })
    }

    /// Waits until the lanes have sent all calls and answered all callers; [`Context::stopping`] must be cancelled.
    pub(crate) async fn drained(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Adds messages (Q3), as far as the quotas of the queue's tenant let them in (S5); `bytes` is their encoded size. A
    /// queue of a template is created, if it is absent; another one only with `may_create`.
    pub(crate) async fn enqueue(
        &self,
        queue: &QueueName,
        mut items: Vec<NewMessage>,
        bytes: usize,
        may_create: bool,
    ) -> Items<Enqueued> {
        // A tenant may have to be read first: that waits for the store, too. The place stays that of all messages if some are refused.
        let place = self.place_of(Verb::Enqueue, queue, items.len(), bytes)?;
        let Some(tenant) = self.context.tenants.of(queue) else {
            return self.add(queue, items, bytes, may_create, place).await;
        };
        let admission = tenant.admit(&items).await?;
        admission.filter(&mut items);
        let answers =
            if items.is_empty() { Vec::new() } else { self.add(queue, items, bytes, may_create, place).await? };
        Ok(admission.merge(answers))
    }

    async fn add(
        &self,
        queue: &QueueName,
        items: Vec<NewMessage>,
        bytes: usize,
        may_create: bool,
        place: RoomPlace,
    ) -> Items<Enqueued> {
        let command = |recipient| Command::Enqueue(Call { items, bytes, may_create, recipient });
        self.through_lane(Verb::Enqueue, queue, place, command).await
    }

    /// Ends leases with success; `bytes` is the encoded size of the call, here and below.
    pub(crate) async fn complete(&self, queue: &QueueName, items: Vec<Completion>, bytes: usize) -> Items<Transition> {
        let place = self.place_of(Verb::Complete, queue, items.len(), bytes)?;
        self.through_lane(Verb::Complete, queue, place, |recipient| Command::Complete(Call::of(items, recipient))).await
    }

    /// Ends leases without success.
    pub(crate) async fn release(&self, queue: &QueueName, items: Vec<Release>, bytes: usize) -> Items<Transition> {
        let place = self.place_of(Verb::Release, queue, items.len(), bytes)?;
        self.through_lane(Verb::Release, queue, place, |recipient| Command::Release(Call::of(items, recipient))).await
    }

    /// Extends leases.
    pub(crate) async fn extend_lease(&self, queue: &QueueName, items: Vec<Extension>, bytes: usize) -> Items<Extended> {
        let place = self.place_of(Verb::Extend, queue, items.len(), bytes)?;
        self.through_lane(Verb::Extend, queue, place, |recipient| Command::Extend(Call::of(items, recipient))).await
    }

    /// Cancels messages.
    pub(crate) async fn cancel(&self, queue: &QueueName, items: Vec<Cancellation>, bytes: usize) -> Items<Transition> {
        let place = self.place_of(Verb::Cancel, queue, items.len(), bytes)?;
        self.through_lane(Verb::Cancel, queue, place, |recipient| Command::Cancel(Call::of(items, recipient))).await
    }

    /// Makes errored and canceled messages pending. No lane combines these calls.
    pub(crate) async fn redrive(&self, queue: &QueueName, ids: Vec<MessageId>, bytes: usize) -> Items<Transition> {
        let _place = self.place_of(Verb::Redrive, queue, ids.len(), bytes)?;
        let shard = shard(queue);
        let results = as_one(self.context.store.redrive(&shard, ids).await);
        self.changed(&shard);
        results
    }

    /// Leases messages, waiting for the first until `until` (Q8, Q18).
    ///
    /// A caller that disconnects before its request is in the store leases nothing. If it disconnects later, its leases
    /// are released at once. With a request id they stay for a retry instead, and expire without one.
    pub(crate) async fn dequeue(
        &self,
        queue: &QueueName,
        request: DequeueRequest,
        bytes: usize,
        until: Instant,
    ) -> Result<Vec<Lease>, Refusal> {
        let (until, place, may_not_wait) = match until > Instant::now() {
            true => match self.place_to_wait(queue) {
                Ok(place) => (until, Some(place), None),
                // It still gets what is runnable now.
                Err(refusal) => (Instant::now(), None, Some(refusal)),
            },
            false => (until, None, None),
        };
        self.context.tenants.check_lease(queue, request.lease_ms)?;
        let has_id = !request.request_id.is_empty();
        let room = Some(self.place_of(Verb::Dequeue, queue, 1, bytes)?);
        let shard = shard(queue);
        let leaving = Leaving::new(&self.lanes, &shard, Verb::Dequeue);
        let (reply, answer) = oneshot::channel();
        self.lanes.send(&shard, Command::Dequeue(Box::new(DequeueCall { request, until, reply, room })));
        let granted = answer.await.unwrap_or_else(|_| Err(lane_failed()));
        leaving.answered();
        let leases = self.taken(&shard, granted?, has_id);
        drop(place);
        may_not_wait.filter(|_| leases.is_empty()).map_or(Ok(leases), Err)
    }

    /// What a unary caller gets. Of what may have ended on the way it gets nothing: it is released, unless it stays with its request id.
    fn taken(&self, shard: &Shard, granted: Granted, has_id: bool) -> Vec<Lease> {
        let (requested_at, now) = (granted.requested_at, Instant::now());
        let (mut leases, mut over) = (granted.take(), Vec::new());
        leases.retain_mut(|lease| {
            let is_left = is_left(lease, requested_at, now);
            if !is_left && !has_id {
                over.push(LeaseRef::from(&*lease));
            }
            is_left
        });
        if !over.is_empty() {
            self.lanes.give_back(shard, over, "lease over");
        }
        leases
    }

    /// The place of a Dequeue that may wait, of the server and of its tenant.
    fn place_to_wait(&self, queue: &QueueName) -> Result<impl Sized + use<S>, Refusal> {
        let max = self.context.wait_limits.dequeues_max;
        let refused = &self.context.metrics.waiters_refused.dequeues;
        let of_server = take_place(&self.dequeues, queue, "waiting Dequeues of one server", max, refused)?;
        let of_tenant = self.context.tenants.of(queue).map(|tenant| tenant.waiter()).transpose()?;
        Ok((of_server, of_tenant))
    }

    /// Subscribes to a queue. The limit in the request is not used.
    pub(crate) fn work(
        &self,
        queue: &QueueName,
        request: DequeueRequest,
        release_on_close: bool,
        events: EventSender,
    ) -> Result<WorkSession, Refusal> {
        self.context.tenants.check_lease(queue, request.lease_ms)?;
        let max = self.context.wait_limits.subscriptions_max;
        let refused = &self.context.metrics.waiters_refused.subscriptions;
        let of_server = take_place(&self.subscriptions, queue, "subscriptions of one server", max, refused)?;
        let of_tenant = self.context.tenants.of(queue).map(|tenant| tenant.subscription()).transpose()?;
        let places = SessionPlaces { _of_server: of_server, _of_tenant: of_tenant };
        Ok(WorkSession::open(&self.lanes, shard(queue), request, release_on_close, events, places))
    }

    /// Creates a queue (Q1). A repeated call takes nothing of the tenant's quotas.
    pub(crate) async fn create_queue(&self, name: &QueueName, config: QueueConfig) -> Result<Queue, Refusal> {
        let store = &self.context.store;
        check_shards(name, config.shards)?;
        let mut creating = self.creating(name).await;
        if let Some(creating) = &mut creating
            && is_absent(store.get_queue(name).await)?
        {
            creating.check_new(&config).await?;
        }
        store.create_queue(name, config).await
    }

    /// Changes the configuration of a queue (Q2).
    pub(crate) async fn update_queue(&self, name: &QueueName, patch: QueuePatch) -> Result<Queue, Refusal> {
        let store = &self.context.store;
        check_shards(name, patch.shards.unwrap_or(1))?;
        let mut changing = self.creating(name).await;
        let has_indexes = patch.indexes.is_some();
        if let Some(changing) = &mut changing {
            let declared = store.get_queue(name).await?.config.indexes.len();
            let more = patch.indexes.as_ref().map_or(0, |indexes| indexes.len().saturating_sub(declared));
            changing.check_changed(patch.lease_ms, more as u64).await?;
        }
        let queue = store.update_queue(name, patch).await?;
        if let Some(changing) = changing.as_mut().filter(|_| has_indexes) {
            changing.left();
        }
        // A resumed queue, or one with new limits, may have messages for the waiting callers.
        self.lanes.wake(&shard(name));
        Ok(queue)
    }

    /// A queue was deleted: its tenant may create another one.
    pub(crate) async fn note_deletion(&self, queue: &QueueName) {
        if let Some(mut creating) = self.creating(queue).await {
            creating.left();
        }
    }

    async fn creating(&self, queue: &QueueName) -> Option<Creating<'_>> {
        match self.context.tenants.of(queue) {
            Some(tenant) => Some(tenant.creating().await),
            None => None,
        }
    }

    /// The place of a call among those that wait for the store.
    fn place_of(&self, verb: Verb, queue: &QueueName, items: usize, bytes: usize) -> Result<RoomPlace, Refusal> {
        self.context.rooms.take(verb, queue, items, bytes)
    }

    async fn through_lane<O>(
        &self,
        verb: Verb,
        queue: &QueueName,
        place: RoomPlace,
        command: impl FnOnce(Recipient<O>) -> Command,
    ) -> Items<O> {
        let shard = shard(queue);
        let leaving = Leaving::new(&self.lanes, &shard, verb);
        let (reply, answer) = oneshot::channel();
        self.lanes.send(&shard, command(Recipient::Caller(reply, Some(place))));
        let results = answer.await.unwrap_or_else(|_| Err(lane_failed()));
        leaving.answered();
        results
    }
}

/// One of the places of the server that are free, of `max` in all; a refusal counts.
fn take_place(
    free: &Arc<Semaphore>,
    queue: &QueueName,
    what: &'static str,
    max: u32,
    refused: &Counter,
) -> Result<OwnedSemaphorePermit, Refusal> {
    free.clone().try_acquire_owned().map_err(|_| {
        refused.increment(1);
        Refusal::TooManyWaiters { queue: queue.to_string(), what, max }
    })
}

/// The first shard of a queue, which stands for all of them in the calls of the engine: a queue has one lane.
pub(crate) fn shard(queue: &QueueName) -> Shard {
    Shard::first(queue)
}

/// Counters keep the fencing tokens of their jobs as numbers of one sequence.
fn check_shards(queue: &QueueName, shards: u16) -> Result<(), Refusal> {
    match queue.is_internal() && shards > 1 {
        true => Err(Refusal::invalid("shards", "must be 1 in a queue of the service itself")),
        false => Ok(()),
    }
}

/// Whether there is no such queue.
fn is_absent(found: Result<Queue, Refusal>) -> Result<bool, Refusal> {
    match found {
        Ok(_) => Ok(false),
        Err(Refusal::QueueNotFound { .. }) => Ok(true),
        Err(refusal) => Err(refusal),
    }
}

/// The task of a lane ended before it answered: it panicked, and the panic is logged.
fn lane_failed() -> Refusal {
    Refusal::Internal("the lane has ended".to_owned())
}
