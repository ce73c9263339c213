//! The loop of a worker: leases in, handlers run, results out.
//!
//! One task holds all the state and is woken by a response, a handler that ended, room to send, or the one
//! timer. Everything that is ready is gathered before a request goes out, so that under load results travel in
//! batches, and each carries the credits for the leases that follow.

use super::Worker;
use super::held::{self, Held};
use super::outcome::{Failure, Lost, Outcome};
use super::stream::{self, Outgoing, Stream, Unanswered};
use crate::connection::next_delay;
use crate::error::{Error, Refused, Result};
use crate::lease::{Lease, LeaseRef, Transition};
use crate::queue::extension_result;
use backon::ExponentialBackoff;
use std::pin::{Pin, pin};
use std::sync::{Arc, atomic::Ordering::Relaxed};
use std::time::Duration;
use tallystone_proto::queue::v1 as wire;
use tokio::sync::mpsc;
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout_at};

/// The most leases that the wire lets a stream ask for at once.
const CREDITS_MAX: u32 = 1_000;

/// The reading side of the stream.
enum Link {
    Opening(Pin<Box<dyn Future<Output = Result<Stream>> + Send>>),
    Open(Box<tonic::Streaming<wire::WorkResponse>>),
}

enum Event {
    Opened(Result<Stream>),
    Response(Result<wire::WorkResponse>),
}

impl Link {
    /// The next event; may be dropped and called again.
    async fn next(&mut self) -> Event {
        match self {
            Link::Opening(opening) => Event::Opened(opening.await),
            Link::Open(responses) => Event::Response(match responses.message().await {
                Ok(Some(response)) => Ok(response),
                Ok(None) => Err(Error::Protocol("the server ended the stream".to_owned())),
                Err(status) => Err(Error::from_status(&status)),
            }),
        }
    }
}

pub(super) struct Run<'w, F> {
    worker: &'w Worker,
    handler: Arc<F>,
    handlers: JoinSet<Result<(), Failure>>,
    held: Held,
    link: Link,
    /// The writing side of the stream, while it is open.
    requests: Option<mpsc::Sender<wire::WorkRequest>>,
    /// Leases asked for that have not come yet.
    credits: u32,
    outgoing: Outgoing,
    unanswered: Unanswered,
    /// Pauses between attempts; `None` while all is well.
    delays: Option<ExponentialBackoff>,
    /// An item was answered with unavailable: say nothing before.
    hold_until: Option<Instant>,
    /// Stopping: handlers may run until then.
    grace_ends: Option<Instant>,
}

impl<'w, F, Fut> Run<'w, F>
where
    F: Fn(Lease) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Failure>> + Send + 'static,
{
    pub(super) fn new(worker: &'w Worker, handler: F) -> Self {
        let opening = Box::pin(stream::open(worker.client.clone(), worker.start(), Duration::ZERO));
        Run {
            worker,
            handler: Arc::new(handler),
            handlers: JoinSet::new(),
            held: Held::new(),
            link: Link::Opening(opening),
            requests: None,
            credits: 0,
            outgoing: Outgoing::default(),
            unanswered: Unanswered::default(),
            delays: None,
            hold_until: None,
            grace_ends: None,
        }
    }

    /// Works until `shutdown`, then stops gracefully. Dropping this future stops at once: handlers are dropped,
    /// leases go back or lapse.
    pub(super) async fn until(mut self, shutdown: impl Future<Output = ()>) -> Result<()> {
        let mut shutdown = pin!(shutdown);
        let mut timer = pin!(sleep_until(self.wake_at()));
        while !self.is_done() {
            // Moving a timer forward is left to when it fires; most leases end long before.
            if self.wake_at() < timer.deadline() {
                timer.as_mut().reset(self.wake_at());
            }
            let may_send = self.requests.is_some() && self.hold_until.is_none() && self.has_something_to_say();
            tokio::select! {
                biased;
                () = &mut shutdown, if self.grace_ends.is_none() => self.stop(),
                Some(ended) = self.handlers.join_next_with_id() => {
                    self.handler_ended(ended);
                    while let Some(ended) = self.handlers.try_join_next_with_id() {
                        self.handler_ended(ended);
                    }
                }
                event = self.link.next() => self.on_event(event)?,
                () = room(&self.requests), if may_send => self.send(),
                () = &mut timer => {
                    self.on_timer(Instant::now());
                    timer.as_mut().reset(self.wake_at());
                }
            }
        }
        self.close().await;
        Ok(())
    }

    /// Stopping, and nothing is left to do on the stream, or no patience.
    fn is_done(&self) -> bool {
        let Some(grace_ends) = self.grace_ends else { return false };
        let settled = self.outgoing.is_settled() && self.unanswered.is_settled();
        let ended = self.handlers.is_empty() && (settled || self.requests.is_none());
        // A handler that blocks its thread cannot be dropped; its lease will lapse.
        ended || grace_ends + self.worker.client.patience.call_timeout <= Instant::now()
    }

    fn wake_at(&self) -> Instant {
        let patience_ends = self.grace_ends.map(|grace_ends| match grace_ends > Instant::now() {
            true => grace_ends,
            false => grace_ends + self.worker.client.patience.call_timeout,
        });
        [self.hold_until, patience_ends].into_iter().flatten().fold(self.held.next(), Instant::min)
    }

    fn stop(&mut self) {
        tracing::debug!(worker = self.worker.name, running = self.handlers.len(), "stopping");
        self.grace_ends = Some(Instant::now() + self.worker.grace);
    }

    fn has_something_to_say(&self) -> bool {
        !self.outgoing.is_empty() || self.free_places() > 0
    }

    /// Places without a handler for which no lease was asked yet.
    fn free_places(&self) -> u32 {
        if self.grace_ends.is_some() {
            return 0;
        }
        let running = u32::try_from(self.handlers.len()).unwrap_or(u32::MAX);
        let free = self.worker.concurrency.saturating_sub(running).saturating_sub(self.credits);
        free.min(CREDITS_MAX - self.credits)
    }

    fn send(&mut self) {
        let credits = self.free_places();
        let Some(requests) = &self.requests else { return };
        self.credits += credits;
        // Nobody else sends, so the room is still there, unless the stream is breaking. Then its reading side will
        // say how, and what was not answered is said again.
        if requests.try_send(self.outgoing.next_request(credits, &mut self.unanswered)).is_err() {
            self.requests = None;
        }
    }

    fn on_timer(&mut self, now: Instant) {
        self.hold_until = self.hold_until.filter(|until| *until > now);
        let due = self.held.due(now, self.requests.is_some());
        self.outgoing.extends.extend(due.extend);
        for (lease, handler) in due.lost {
            self.lose(lease, &handler, Lost::Expired);
        }
        if self.grace_ends.is_some_and(|grace_ends| grace_ends <= now) {
            self.handlers.abort_all();
        }
    }

    fn handler_ended(&mut self, ended: Result<(task::Id, Result<(), Failure>), JoinError>) {
        let (task, result) = match ended {
            Ok((task, result)) => (task, result),
            Err(error) => {
                (error.id(), Err(error.try_into_panic().map_or_else(|_| Failure::stopped(), Failure::panicked)))
            }
        };
        // A lease that was lost has been accounted for.
        let Some(lease) = self.held.remove(task) else { return };
        match result {
            Ok(()) => self.outgoing.completes.push_back(lease),
            Err(failure) => self.outgoing.releases.push_back(failure.into_release(lease)),
        }
    }

    fn on_event(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Opened(Ok(stream)) => {
                self.link = Link::Open(Box::new(stream.responses));
                self.requests = Some(stream.requests);
                self.credits = 0;
                self.held.look_again();
            }
            Event::Response(Ok(response)) => {
                let received = Instant::now();
                self.on_results(response.completed, response.released, response.extended)?;
                for lease in response.leases {
                    self.start(Lease::from_wire(lease), received);
                }
            }
            Event::Opened(Err(error)) => self.reconnect(error)?,
            Event::Response(Err(error)) => {
                self.worker.counters.reconnects.fetch_add(1, Relaxed);
                self.reconnect(error)?;
            }
        }
        Ok(())
    }

    /// The stream is broken, or could not be opened: forget it and open another, unless that is hopeless.
    fn reconnect(&mut self, error: Error) -> Result<()> {
        if is_final(&error) {
            return Err(error);
        }
        let delay = next_delay(&mut self.delays);
        tracing::warn!(worker = self.worker.name, %error, ?delay, "the work stream broke; opening another");
        self.requests = None;
        self.hold_until = None;
        self.outgoing.say_again(&mut self.unanswered);
        let now = Instant::now();
        for (task, _) in std::mem::take(&mut self.unanswered.extends) {
            self.held.not_extended(task, now);
        }
        if self.worker.release_on_close {
            // The server has given the leases back.
            for (lease, handler) in self.held.lose_all() {
                self.lose(lease, &handler, Lost::StreamClosed);
            }
        }
        self.link = Link::Opening(Box::pin(stream::open(self.worker.client.clone(), self.worker.start(), delay)));
        Ok(())
    }

    fn start(&mut self, lease: Lease, received: Instant) {
        self.worker.counters.leased.fetch_add(1, Relaxed);
        self.credits = self.credits.saturating_sub(1);
        let (held, length) = (lease.lease_ref(), held::length(&lease));
        let handler = Arc::clone(&self.handler);
        // The call too is made within the task, where its panic is caught.
        let task = self.handlers.spawn(async move { handler(lease).await });
        self.held.insert(task, held, length, received);
    }

    fn lose(&mut self, lease: LeaseRef, handler: &task::AbortHandle, how: Lost) {
        handler.abort();
        self.worker.settle(&lease, Outcome::Lost(how));
    }

    /// The answers to what was said, each kind in the order in which it was said.
    fn on_results(
        &mut self,
        completed: Vec<wire::TransitionResult>,
        released: Vec<wire::TransitionResult>,
        extended: Vec<wire::LeaseExtensionResult>,
    ) -> Result<()> {
        let unasked = || Error::Protocol("an answer to what was not asked".to_owned());
        for result in completed {
            let lease = self.unanswered.completes.pop_front().ok_or_else(unasked)?;
            match self.settled(&lease, Transition::from_result(result), Outcome::Completed) {
                Settled::Yes => {}
                Settled::SayAgain => self.outgoing.completes.push_back(lease),
            }
        }
        for result in released {
            let release = self.unanswered.releases.pop_front().ok_or_else(unasked)?;
            match self.settled(&release.lease, Transition::from_result(result), Outcome::Released) {
                Settled::Yes => {}
                Settled::SayAgain => self.outgoing.releases.push_back(release),
            }
        }
        for result in extended {
            let (task, asked_at) = self.unanswered.extends.pop_front().ok_or_else(unasked)?;
            match extension_result(result) {
                Ok(_) => {
                    self.delays = None;
                    self.worker.counters.extended.fetch_add(1, Relaxed);
                    self.held.extended(task, asked_at);
                }
                Err(refused) if refused.is_unavailable() => {
                    let ask_again = self.hold();
                    self.held.not_extended(task, ask_again);
                }
                Err(refused) => {
                    if let Some((lease, handler)) = self.held.lose(task) {
                        self.lose(lease, &handler, Lost::Refused(refused));
                    }
                }
            }
        }
        Ok(())
    }

    fn settled(
        &mut self,
        lease: &LeaseRef,
        result: Result<Transition, Refused>,
        ok: fn(Transition) -> Outcome,
    ) -> Settled {
        match result {
            Ok(transition) => {
                self.delays = None;
                self.worker.settle(lease, ok(transition));
            }
            Err(refused) if refused.is_unavailable() => {
                self.hold();
                return Settled::SayAgain;
            }
            Err(refused) => self.worker.settle(lease, Outcome::Lost(Lost::Refused(refused))),
        }
        Settled::Yes
    }

    /// The store is away: pause before saying more.
    fn hold(&mut self) -> Instant {
        let delays = &mut self.delays;
        *self.hold_until.get_or_insert_with(|| Instant::now() + next_delay(delays))
    }

    /// Ends the stream, and tells by unary calls what could not be told on it.
    async fn close(mut self) {
        self.requests = None;
        let deadline = Instant::now() + Duration::from_secs(1);
        if let Link::Open(responses) = &mut self.link {
            let mut late = Vec::new();
            while let Ok(Ok(Some(response))) = timeout_at(deadline, responses.message()).await {
                late.push(response);
            }
            for response in late {
                // What was leased to credits given before the stop; a server that releases on close has done so.
                if !self.worker.release_on_close {
                    for lease in response.leases {
                        let lease = Lease::from_wire(lease).lease_ref();
                        self.outgoing.releases.push_back(Failure::stopped().into_release(lease));
                    }
                }
                if self.on_results(response.completed, response.released, response.extended).is_err() {
                    break;
                }
            }
        }
        self.outgoing.say_again(&mut self.unanswered);
        self.settle_unary().await;
    }

    async fn settle_unary(&mut self) {
        let Worker { client, queue, .. } = self.worker;
        for completes in Vec::from(std::mem::take(&mut self.outgoing.completes)).chunks(500) {
            match client.complete(queue, completes.to_vec()).await {
                Ok(results) => {
                    for (lease, result) in completes.iter().zip(results) {
                        self.settled(lease, result, Outcome::Completed);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, count = completes.len(), "results could not be told; leases lapse")
                }
            }
        }
        for releases in Vec::from(std::mem::take(&mut self.outgoing.releases)).chunks(500) {
            match client.release(queue, releases.to_vec()).await {
                Ok(results) => {
                    for (release, result) in releases.iter().zip(results) {
                        self.settled(&release.lease, result, Outcome::Released);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, count = releases.len(), "leases could not be given back; they lapse")
                }
            }
        }
    }
}

enum Settled {
    Yes,
    SayAgain,
}

/// Waits for room for one request, or for the stream to break.
async fn room(requests: &Option<mpsc::Sender<wire::WorkRequest>>) {
    if let Some(requests) = requests {
        let _ = requests.reserve().await;
    }
}

/// Whether opening another stream cannot help.
fn is_final(error: &Error) -> bool {
    use tonic::Code;
    error.refused().is_some_and(|refused| {
        matches!(
            refused.code,
            Code::InvalidArgument
                | Code::NotFound
                | Code::PermissionDenied
                | Code::Unauthenticated
                | Code::Unimplemented
        )
    })
}
