//! The lane of one queue shard: one task that combines the calls of all callers and holds those who wait.
//!
//! What comes while the store is busy gathers and travels as one flush: one store call per verb. Up to [`IN_FLIGHT`]
//! flushes are on their way, so that the store always has the next one at hand; an idle lane sends the first call at
//! once. A further flush leaves when it has become as large as what is on its way, or when that is back: else the
//! first callers to be answered would make up a small one, and small ones cost a script, an event and an fsync as large
//! ones do (docs/decisions/0013). Answers come back in the order in which the flushes went.

use super::Context;
use super::flush::{Flush, Outcome, perform};
use super::gather::{Gather, Parts, split};
use super::granted::Granted;
use super::lanes::Lanes;
use super::waiting::{Retry, Waiting};
use super::work::{Submission, WorkEvent, call};
use super::{Command, StreamId};
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use rand::Rng;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tallystone_model::message::Enqueued;
use tallystone_model::store::{
    Cancellation, Dequeued, Extended, Extension, Items, LeaseRef, Outlook, Release, Transition,
};
use tallystone_model::{NewMessage, Refusal, Shard, Store};
use tokio::sync::mpsc;

use tokio::time::{Instant, Sleep, sleep_until};

/// Flushes of one lane that may be in the store at once.
const IN_FLIGHT: usize = 2;
/// A lane without work or waiters ends after this long.
const IDLE: Duration = Duration::from_secs(60);
/// Waiters are asked for again after this long (up to twice, drawn at random) even if nothing has signaled: a net
/// below the store's tells, not a way to find work.
const SAFETY: Duration = Duration::from_secs(60);
/// The first delay before a store that is away, or builds an index, is asked again; doubled each time.
const RETRY_MIN: Duration = Duration::from_millis(25);
/// The last.
const RETRY_MAX: Duration = Duration::from_secs(1);
/// How often a Work stream looks whether its queue is still paused (an UpdateQueue on this server tells at once).
const PAUSED: Duration = Duration::from_secs(2);

struct Lane<S> {
    context: Arc<Context<S>>,
    lanes: Arc<Lanes>,
    shard: Shard,
    complete: Gather<LeaseRef, Transition>,
    release: Gather<Release, Transition>,
    extend: Gather<Extension, Extended>,
    cancel: Gather<Cancellation, Transition>,
    enqueue: Gather<NewMessage, Enqueued>,
    waiting: Waiting,
    timers: Timers,
    /// The last due time that the sweeper was told of, by the store's clock.
    told_due_ms: u64,
    /// The number of waiters that the metrics know of.
    shown_held: usize,
}

/// When the lane acts though nothing comes. All but `idle_at` matter only while somebody waits.
struct Timers {
    /// The next invisible message or lease falls due.
    due_at: Option<Instant>,
    /// The store is asked again.
    retry_at: Option<Instant>,
    retries: u32,
    safety_at: Instant,
    idle_at: Instant,
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
    let mut lane = Lane {
        context: context.clone(),
        lanes: lanes.clone(),
        shard: shard.clone(),
        complete: Gather::default(),
        release: Gather::default(),
        extend: Gather::default(),
        cancel: Gather::default(),
        enqueue: Gather::default(),
        waiting: Waiting::new(),
        timers: Timers { due_at: None, retry_at: None, retries: 0, safety_at: now + SAFETY, idle_at: now + IDLE },
        told_due_ms: 0,
        shown_held: 0,
    };
    let mut in_flight = FuturesOrdered::new();
    // The items of each.
    let mut sizes = VecDeque::new();
    let mut timer = std::pin::pin!(sleep_until(now + IDLE));
    let mut stopped = false;
    loop {
        if in_flight.len() < IN_FLIGHT {
            // Callers that are ready to run get in first: larger flushes for no delay.
            tokio::task::yield_now().await;
        }
        while let Ok(command) = commands.try_recv() {
            lane.take_in(command);
        }
        if in_flight.len() < IN_FLIGHT
            && lane.gathered() >= sizes.iter().sum()
            && let Some(flush) = lane.flush()
        {
            sizes.push_back(flush.items());
            in_flight.push_back(perform(context.clone(), shard.clone(), flush));
        }
        lane.timers.arm(timer.as_mut(), lane.waiting.expire_at(), lane.waiting.held() > 0);
        tokio::select! {
            // In this order: a new flush is polled, and so reaches the store's connection, before another is made up.
            biased;
            Some(outcome) = in_flight.next() => {
                sizes.pop_front();
                lane.settle(outcome);
            }
            Some(command) = commands.recv() => lane.take_in(command),
            () = stopping.cancelled(), if !stopped => {
                stopped = true;
                lane.waiting.stop(Instant::now());
            }
            () = &mut timer => {
                let idle = lane.on_timer(Instant::now()) && in_flight.is_empty();
                if idle && lanes.close(&shard, &commands) {
                    break;
                }
                // Fired: it must be armed anew though no time of it has changed.
                timer.as_mut().reset(Instant::now() + IDLE);
            }
        }
        if stopped && in_flight.is_empty() && lane.is_idle() && lanes.close(&shard, &commands) {
            break;
        }
    }
}

impl<S: Store> Lane<S> {
    fn take_in(&mut self, command: Command) {
        match command {
            Command::Enqueue(call) => self.enqueue.push(call),
            Command::Complete(call) => self.complete.push(call),
            Command::Release(call) => self.release.push(call),
            Command::Extend(call) => self.extend.push(call),
            Command::Cancel(call) => self.cancel.push(call),
            Command::Dequeue(waiter) => self.waiting.arrive(waiter),
            Command::OpenStream(id, stream) => self.waiting.open_stream(id, *stream),
            Command::Submit(id, submission) => self.submit(id, *submission),
            Command::StopStream(id) => self.waiting.stop_stream(id),
            Command::CloseStream(id) => self.waiting.close_stream(id),
            Command::Wake => self.waiting.signal(1),
        }
    }

    fn submit(&mut self, id: StreamId, submission: Submission) {
        let Submission { credits, complete, release, extend } = submission;
        call(id, complete).into_iter().for_each(|call| self.complete.push(call));
        call(id, release).into_iter().for_each(|call| self.release.push(call));
        call(id, extend).into_iter().for_each(|call| self.extend.push(call));
        self.waiting.credit(id, credits);
    }

    /// What waits to be sent.
    fn gathered(&self) -> usize {
        self.complete.items()
            + self.release.items()
            + self.extend.items()
            + self.cancel.items()
            + self.enqueue.items()
            + self.waiting.fresh()
    }

    /// Makes up the next flush.
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
            // What is enqueued may all be runnable; of the rest one waiter finds out.
            self.waiting.signal(flush.enqueue.as_ref().map_or(1, |batch| batch.items.len()));
            self.timers.idle_at = now + IDLE;
        }
        flush.dequeue = self.waiting.dispatch(now);
        if flush.dequeue.is_some() {
            self.timers.idle_at = now + IDLE;
            self.timers.safety_at = now + SAFETY.mul_f64(rand::rng().random_range(1.0..2.0));
        }
        self.measure(&flush);
        (!flush.is_empty()).then_some(flush)
    }

    /// Gives everyone their answers.
    fn settle(&mut self, outcome: Outcome) {
        let now = Instant::now();
        let Outcome { complete, release, extend, cancel, enqueue, dequeue, overtaken } = outcome;
        let wrote = complete.is_some() || release.is_some() || cancel.is_some() || enqueue.is_some();
        self.answer(complete, |event| Some(&mut event.completed));
        self.answer(release, |event| Some(&mut event.released));
        self.answer(extend, |event| Some(&mut event.extended));
        self.answer(cancel, |_| None);
        self.answer(enqueue, |_| None);
        if overtaken {
            self.waiting.signal(1);
        }
        if let Some((asks, answer)) = dequeue {
            self.context.health.saw(&answer);
            if let Ok(Dequeued { outlook, .. }) = &answer {
                self.look_out(outlook, now);
            }
            let (lanes, shard) = (&self.lanes, &self.shard);
            let retry = self.waiting.settle(asks, answer, now, |leases, keyed| match keyed {
                true => Granted::kept(leases),
                false => Granted::returning(leases, lanes, shard),
            });
            self.timers.retry(retry, now);
        }
        if wrote {
            // Windows, retentions and leases may have begun of which no answer speaks.
            self.context.sweeper.touch(&self.shard);
        }
        self.waiting.send_events();
        let held = self.waiting.held();
        if held != self.shown_held {
            self.context.metrics.waiting.increment(held as f64 - self.shown_held as f64);
            self.shown_held = held;
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
            (&combined.dequeue, flush.dequeue.as_ref().map(|asks| asks.requests.len())),
        ];
        for (histogram, size) in sizes {
            size.into_iter().for_each(|size| histogram.record(size as f64));
        }
    }

    /// Splits one verb's answer among unary callers and Work streams.
    fn answer<O>(
        &mut self,
        outcome: Option<(Parts<O>, Items<O>)>,
        list: impl Fn(&mut WorkEvent) -> Option<&mut Vec<Result<O, Refusal>>>,
    ) {
        let Some((parts, answer)) = outcome else { return };
        self.context.health.saw(&answer);
        split(parts, answer, |id, count, share| {
            let Some(list) = self.waiting.event(id).and_then(&list) else { return };
            match share {
                Ok(items) => list.extend(items),
                Err(refusal) => list.extend((0..count).map(|_| Err(refusal.clone()))),
            }
        });
    }

    /// Notes when something falls due next. The times are the store's; only their distance counts here.
    fn look_out(&mut self, outlook: &Outlook, now: Instant) {
        let Some(due_ms) = outlook.next_due_ms else {
            self.timers.due_at = None;
            return;
        };
        let until_due = Duration::from_millis(due_ms.saturating_sub(outlook.now_ms));
        self.timers.due_at = Some(now + until_due);
        if due_ms < self.told_due_ms || self.told_due_ms <= outlook.now_ms {
            self.told_due_ms = due_ms;
            self.context.sweeper.due(&self.shard, until_due);
        }
    }

    /// Does what has fallen due; answers whether the lane has been idle for long.
    fn on_timer(&mut self, now: Instant) -> bool {
        let is_due = |at: &mut Option<Instant>| at.take_if(|at| *at <= now).is_some();
        if is_due(&mut self.timers.due_at) | is_due(&mut self.timers.retry_at) {
            self.waiting.signal(1);
        }
        if self.timers.safety_at <= now {
            self.timers.safety_at = now + SAFETY;
            self.waiting.signal(1);
        }
        if self.waiting.expire_at().is_some_and(|at| at <= now) {
            self.waiting.expire(now);
        }
        let idle = self.timers.idle_at <= now && self.is_idle();
        if self.timers.idle_at <= now {
            self.timers.idle_at = now + IDLE;
        }
        idle
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

impl Timers {
    /// Lets the timer fire at the next of these times. It may fire early, never late.
    fn arm(&self, timer: Pin<&mut Sleep>, expire_at: Option<Instant>, waiters: bool) {
        let next = match waiters {
            false => self.idle_at,
            true => {
                let times = [self.due_at, self.retry_at, expire_at];
                times.into_iter().flatten().fold(self.safety_at, Instant::min)
            }
        };
        if next < timer.deadline() {
            timer.reset(next);
        }
    }

    /// Schedules the next try after a refusal that may pass, later each time.
    fn retry(&mut self, retry: Option<Retry>, now: Instant) {
        let delay = match retry {
            // A retry that is scheduled stays so: it may be another group's.
            None => {
                self.retries = 0;
                return;
            }
            Some(Retry::Soon) => (RETRY_MIN * 2_u32.saturating_pow(self.retries)).min(RETRY_MAX),
            Some(Retry::Paused) => PAUSED,
        };
        self.retries = (self.retries + 1).min(16);
        self.retry_at = Some(now + delay.mul_f64(rand::rng().random_range(0.5..1.5)));
    }
}
