//! The lane of one queue shard: one task that combines the calls of all callers and holds the waiting ones.
//!
//! Calls that arrive while the store is busy gather, and are sent as one flush: one store call per verb. Up to
//! [`IN_FLIGHT`] flushes are in the store at once, so that the store never waits for the next one. An idle lane sends the
//! first call at once. A further flush is sent when it has as many items as those in flight, or when they have
//! returned: otherwise the first callers to get their results would form a small flush, and a small flush costs as many
//! scripts, outbox entries and fsyncs as a large one (docs/decisions/0013). Results arrive in the order of the flushes.
//!
//! Each flush needs a permit, so that no lane takes the store from the others (`fair_queue`).

use super::call::{Call, SubscriptionId};
use super::command::{Command, Verb};
use super::context::Context;
use super::cost::Load;
use super::count::count;
use super::fair_queue::Entrance;
use super::flush::{Flush, Outcome, perform};
use super::gather::{Gather, Parts, split};
use super::granted::Granted;
use super::lanes::Lanes;
use super::places::{WaitRefusals, WaiterPlaces};
use super::subscription::{Submission, WorkEvent};
use super::timers::{IDLE, Timers};
use super::waiting::{DequeueBatch, SLOTS, Waiting};
use crate::queue_metrics::Tally;
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use metrics::{Counter, Gauge};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tallystone_model::message::Enqueued;
use tallystone_model::store::{
    Cancellation, Completion, Dequeued, Extended, Extension, Items, Outlook, Release, Transition,
};
use tallystone_model::{NewMessage, Refusal, Shard, Store};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// How many flushes of one lane may be in the store at once; each may have a dequeue.
const IN_FLIGHT: usize = SLOTS;
/// How many commands are taken in before the next flush is formed. Callers that send without a pause do not keep it back.
const COMMANDS_AT_ONCE: usize = 1_000;

struct Lane<S> {
    context: Arc<Context<S>>,
    lanes: Arc<Lanes>,
    shard: Shard,
    complete: Gather<Completion, Transition>,
    release: Gather<Release, Transition>,
    extend: Gather<Extension, Extended>,
    cancel: Gather<Cancellation, Transition>,
    enqueue: Gather<NewMessage, Enqueued>,
    waiting: Waiting,
    timers: Timers,
    /// The due time that the sweeper was last notified of, by the store's clock.
    notified_due_ms: u64,
    /// The number of waiting callers in the metrics.
    measured_held: usize,
    /// What the last dequeue has leased.
    leased_last: Load,
    /// Since the last flush was formed, the store has answered that there is no such queue.
    absent: bool,
    tally: Arc<Tally>,
}

/// Counts a lane in the metrics until it ends, also if it panics.
struct Counted(Gauge);

impl Counted {
    fn new(lanes: Gauge) -> Self {
        lanes.increment(1);
        Counted(lanes)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

/// Runs the lane of a shard until it is idle.
pub(super) async fn run<S: Store>(
    context: Arc<Context<S>>,
    lanes: Arc<Lanes>,
    shard: Shard,
    mut commands: mpsc::UnboundedReceiver<Command>,
) {
    let stopping = context.stopping.clone();
    let now = Instant::now();
    let tally = context.queues.tally(&shard.queue);
    let refused = &context.metrics.waiters_refused;
    let refusals = |of_server: &Counter| tally.refusals("TOO_MANY_WAITERS", of_server.clone());
    let refusals =
        WaitRefusals { waiters: refusals(&refused.queue_waiters), filters: refusals(&refused.queue_filters) };
    let places = WaiterPlaces::new(shard.queue.clone(), context.wait_limits, refusals);
    let _counted = Counted::new(context.metrics.lanes.clone());
    let mut lane = Lane {
        context: context.clone(),
        lanes: lanes.clone(),
        shard: shard.clone(),
        complete: Gather::default(),
        release: Gather::default(),
        extend: Gather::default(),
        cancel: Gather::default(),
        enqueue: Gather::default(),
        waiting: Waiting::new(lanes.server, places),
        timers: Timers::new(now),
        notified_due_ms: 0,
        measured_held: 0,
        leased_last: Load::default(),
        absent: false,
        tally,
    };
    let mut entrance = match context.tenants.of(&shard.queue) {
        Some(tenant) => Entrance::of_tenant(&context.fair_queue, tenant.prefix()),
        None => Entrance::of_queue(&context.fair_queue, shard.queue.as_str()),
    };
    let mut permit = None;
    let mut in_flight = FuturesOrdered::new();
    // The number of items of each.
    let mut sizes = VecDeque::new();
    let mut timer = std::pin::pin!(sleep_until(now + IDLE));
    let mut stopped = false;
    loop {
        if in_flight.len() < IN_FLIGHT {
            // Tasks that are ready to run send their calls first: a larger flush, without delay.
            tokio::task::yield_now().await;
        }
        for _ in 0..COMMANDS_AT_ONCE {
            let Ok(command) = commands.try_recv() else { break };
            lane.accept(command);
        }
        lane.drop_left();
        let may_flush = in_flight.len() < IN_FLIGHT && lane.gathered().items >= sizes.iter().sum() && lane.has_work();
        if may_flush && permit.is_none() {
            permit = entrance.enter(lane.gathered().cost());
        }
        if let Some(permit) = permit.take()
            && let Some(flush) = lane.flush()
        {
            let load = flush.load();
            entrance.flushed(load.cost());
            sizes.push_back(load.items);
            let leases = lane.expected_leases(&flush);
            in_flight.push_back(perform(context.clone(), shard.clone(), flush, leases, permit));
        }
        // The lane of a queue that does not exist costs no memory after its calls, however many names callers invent. The
        // next call of that name starts a lane again, and the store answers it: a queue that was created meanwhile is found.
        let is_over = stopped || lane.absent;
        if is_over && in_flight.is_empty() && lane.is_idle() && lanes.close(&shard, &commands) {
            break;
        }
        lane.timers.arm(timer.as_mut(), lane.waiting.expire_at(), lane.waiting.held() > 0);
        tokio::select! {
            // In this order: a new flush is polled, and so reaches the store's connection, before the next is formed.
            biased;
            Some(outcome) = in_flight.next() => {
                sizes.pop_front();
                if let Some(exists) = outcome.finds_queue() {
                    entrance.saw(exists);
                }
                lane.settle(outcome);
            }
            given = entrance.permit() => permit = Some(given),
            () = stopping.cancelled(), if !stopped => {
                stopped = true;
                lane.waiting.stop(Instant::now());
            }
            () = &mut timer => {
                let idle = lane.on_timer(Instant::now()) && in_flight.is_empty();
                if idle && lanes.close(&shard, &commands) {
                    break;
                }
                // It has fired, so it must be set again even if no time has changed.
                timer.as_mut().reset(Instant::now() + IDLE);
            }
            Some(command) = commands.recv() => lane.accept(command),
        }
    }
    let (is_absent, tally) = (lane.absent, lane.tally.clone());
    // The places of waiters hold the tally, too.
    drop(lane);
    if is_absent {
        context.queues.forget(&shard.queue, tally);
    }
}

impl<S: Store> Lane<S> {
    fn accept(&mut self, command: Command) {
        match command {
            Command::Enqueue(call) => self.enqueue.push(call),
            Command::Complete(call) => self.complete.push(call),
            Command::Release(call) => self.release.push(call),
            Command::Extend(call) => self.extend.push(call),
            Command::Cancel(call) => self.cancel.push(call),
            Command::Dequeue(waiter) => self.waiting.arrive(waiter, Instant::now()),
            Command::Subscribe(id, subscription) => self.waiting.subscribe(id, *subscription, Instant::now()),
            Command::Submit(id, submission) => self.submit(id, *submission),
            Command::StopSubscription(id) => self.waiting.stop_subscription(id),
            Command::Unsubscribe(id) => self.waiting.unsubscribe(id),
            Command::CallerLeft(verb) => self.caller_left(verb),
            Command::Wake => self.waiting.signal(1),
            Command::Revoke(lease) => self.waiting.revoke(&lease),
        }
    }

    fn caller_left(&mut self, verb: Verb) {
        match verb {
            Verb::Enqueue => self.enqueue.caller_left(),
            Verb::Complete => self.complete.caller_left(),
            Verb::Release => self.release.caller_left(),
            Verb::Extend => self.extend.caller_left(),
            Verb::Cancel => self.cancel.caller_left(),
            Verb::Dequeue => self.waiting.caller_left(),
            // No lane has these.
            Verb::Redrive => {}
        }
    }

    /// Drops the calls whose callers have disconnected: others get their room.
    fn drop_left(&mut self) {
        self.enqueue.drop_left();
        self.complete.drop_left();
        self.release.drop_left();
        self.extend.drop_left();
        self.cancel.drop_left();
        self.waiting.drop_left();
    }

    fn submit(&mut self, id: SubscriptionId, submission: Submission) {
        let Submission { credits, complete, release, extend, over } = submission;
        self.waiting.let_go(id, &over);
        Call::of_subscription(id, complete).into_iter().for_each(|call| self.complete.push(call));
        Call::of_subscription(id, release).into_iter().for_each(|call| self.release.push(call));
        Call::of_subscription(id, extend).into_iter().for_each(|call| self.extend.push(call));
        self.waiting.credit(id, credits);
    }

    /// What waits to be sent.
    fn gathered(&self) -> Load {
        let writes = self.complete.load().plus(self.release.load()).plus(self.extend.load()).plus(self.cancel.load());
        writes.plus(self.enqueue.load()).plus(Load { items: self.waiting.fresh(), bytes: 0 })
    }

    /// What the flush will lease, by what the last one with a dequeue did.
    fn expected_leases(&self, flush: &Flush) -> Load {
        self.leased_last.at_most(flush.dequeue.as_ref().map_or(0, DequeueBatch::limit))
    }

    /// Whether a flush may have anything to send.
    fn has_work(&self) -> bool {
        self.gathered().items > 0 || self.waiting.held() > 0
    }

    /// Forms the next flush.
    fn flush(&mut self) -> Option<Flush> {
        let now = Instant::now();
        let mut flush = Flush {
            complete: self.complete.take(),
            release: self.release.take(),
            extend: self.extend.take(),
            cancel: self.cancel.take(),
            enqueue: self.enqueue.take(),
            dequeue: None,
        };
        if flush.writes() {
            // All enqueued messages may be runnable. After the other verbs one waiter finds out.
            self.waiting.signal(flush.enqueue.as_ref().map_or(1, |batch| batch.items.len()));
        }
        flush.dequeue = self.waiting.dispatch(now);
        self.measure(&flush);
        if flush.is_empty() {
            return None;
        }
        self.timers.flushed(flush.dequeue.is_some(), now);
        self.absent = false;
        Some(flush)
    }

    /// Sends every caller its results.
    fn settle(&mut self, outcome: Outcome) {
        let now = Instant::now();
        self.absent |= outcome.finds_queue() == Some(false);
        count(&outcome, &self.tally);
        let Outcome { complete, release, extend, cancel, enqueue, dequeue, dequeue_sent_at, leased, overtaken } =
            outcome;
        let wrote = complete.is_some() || release.is_some() || cancel.is_some() || enqueue.is_some();
        self.answer(complete, |event| Some(&mut event.completed));
        self.answer(release, |event| Some(&mut event.released));
        self.answer(extend, |event| Some(&mut event.extended));
        self.answer(cancel, |_| None);
        self.answer(enqueue, |_| None);
        if overtaken {
            self.waiting.signal(1);
        }
        if let Some((batch, answer)) = dequeue {
            self.saw(&answer);
            if let Ok(Dequeued { outlook, .. }) = &answer {
                self.note_due(outlook, now);
                self.leased_last = leased;
            }
            let (lanes, shard) = (&self.lanes, &self.shard);
            let retry = self.waiting.settle(batch, answer, now, |leases, has_request_id| match has_request_id {
                true => Granted::kept(leases, dequeue_sent_at),
                false => Granted::returning(leases, dequeue_sent_at, lanes.clone(), shard),
            });
            self.timers.retry(retry, now);
        }
        if wrote && !self.absent {
            // An invisibility, a retention or a lease may have begun, and the results do not say so.
            self.context.sweeper.touch(&self.shard);
        }
        self.waiting.send_events();
        self.measure_held();
    }

    /// Notes whether the store answers.
    fn saw<T>(&self, answer: &Result<T, Refusal>) {
        if !self.context.store.is_spread(&self.shard) {
            self.context.health.saw(&self.shard, answer);
        }
    }

    fn measure_held(&mut self) {
        let held = self.waiting.held();
        if held != self.measured_held {
            self.context.metrics.waiting.increment(held as f64 - self.measured_held as f64);
            self.measured_held = held;
        }
    }

    fn measure(&self, flush: &Flush) {
        let combined = &self.context.metrics.combined;
        let sizes = [
            (&combined.complete, flush.complete.as_ref().map(|batch| batch.items.len())),
            (&combined.release, flush.release.as_ref().map(|batch| batch.items.len())),
            (&combined.extend, flush.extend.as_ref().map(|batch| batch.items.len())),
            (&combined.cancel, flush.cancel.as_ref().map(|batch| batch.items.len())),
            (&combined.enqueue, flush.enqueue.as_ref().map(|batch| batch.items.len())),
            (&combined.dequeue, flush.dequeue.as_ref().map(|batch| batch.requests.len())),
        ];
        for (histogram, size) in sizes {
            size.into_iter().for_each(|size| histogram.record(size as f64));
        }
    }

    /// Splits one verb's results among unary callers and subscriptions.
    fn answer<O>(
        &mut self,
        outcome: Option<(Parts<O>, Items<O>)>,
        list: impl Fn(&mut WorkEvent) -> Option<&mut Vec<Result<O, Refusal>>>,
    ) {
        let Some((parts, answer)) = outcome else { return };
        self.saw(&answer);
        split(parts, answer, |id, count, share| {
            let Some(list) = self.waiting.event(id).and_then(&list) else { return };
            match share {
                Ok(items) => list.extend(items),
                Err(refusal) => list.extend((0..count).map(|_| Err(refusal.clone()))),
            }
        });
    }

    /// Sets the timer, and the sweeper's schedule, to the next due time. The times are of the store's clock: only their
    /// difference matters here.
    fn note_due(&mut self, outlook: &Outlook, now: Instant) {
        let Some(due_ms) = outlook.next_due_ms else {
            self.timers.due_at = None;
            return;
        };
        let until_due = Duration::from_millis(due_ms.saturating_sub(outlook.now_ms));
        self.timers.due_at = Some(now + until_due);
        if due_ms < self.notified_due_ms || self.notified_due_ms <= outlook.now_ms {
            self.notified_due_ms = due_ms;
            self.context.sweeper.due(&self.shard, until_due);
        }
    }

    /// Acts on the times that have come. Returns whether the lane has been idle for long.
    fn on_timer(&mut self, now: Instant) -> bool {
        let fired = self.timers.fire(now);
        if fired.signal {
            self.waiting.signal(1);
        }
        if self.waiting.expire_at().is_some_and(|at| at <= now) {
            self.waiting.expire(now);
            self.measure_held();
        }
        fired.idle && self.is_idle()
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_idle()
            && self.complete.is_empty()
            && self.release.is_empty()
            && self.extend.is_empty()
            && self.cancel.is_empty()
            && self.enqueue.is_empty()
    }
}
