//! The loop of a worker: leases in, handlers run, results out.
//!
//! One task has all the state. A response, an ended handler, room to send, or the one timer wakes it. It gathers all
//! results that are ready before it sends a request, so that under load results travel in batches, each with the credits
//! for the next leases.

mod stopping;

#[cfg(test)]
mod tests;

use super::held::{HeldLeases, Term};
use super::outcome::{Failure, Lost, Outcome, Success};
use super::outgoing::{Outgoing, Unanswered};
use super::settings::Settings;
#[cfg(feature = "telemetry")]
use super::spans::Spans;
use super::stream::{self, Requests, Responses, Room, Stream};
use crate::calls::next_delay;
use crate::error::{Error, Refused, Result};
use crate::lease::{Lease, LeaseRef, Transition};
use crate::queue::extension_result;
use backon::ExponentialBackoff;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tallystone_proto::queue::v1 as wire;
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

/// The most outstanding credits of a stream.
const CREDITS_MAX: u32 = 1_000;

/// After an outage, a stream that is open for this time stays open. A server whose store is refused opens each stream, and
/// ends it with the first Dequeue.
const STAYS_OPEN: Duration = Duration::from_secs(5);

/// The reading side of the stream.
enum Reading {
    Opening(Pin<Box<dyn Future<Output = Result<Stream>> + Send>>),
    Open(Responses),
}

enum StreamEvent {
    Opened(Result<Stream>),
    Response(Result<wire::WorkResponse>),
}

impl Reading {
    /// The next event. Cancel safe.
    async fn next(&mut self) -> StreamEvent {
        match self {
            Reading::Opening(opening) => StreamEvent::Opened(opening.await),
            Reading::Open(responses) => StreamEvent::Response(match responses.message().await {
                Ok(Some(response)) => Ok(response),
                Ok(None) => Err(Error::Protocol("the server ended the stream".to_owned())),
                Err(error) => Err(error),
            }),
        }
    }
}

pub(super) struct WorkerLoop<'w, F> {
    settings: &'w Settings,
    /// Cloned for each message.
    handler: F,
    handlers: JoinSet<Result<Success, Failure>>,
    held: HeldLeases,
    reading: Reading,
    /// The writing side of the stream, while it is open.
    requests: Option<Requests>,
    /// Credits for which no lease has arrived yet.
    credits: u32,
    outgoing: Outgoing,
    unanswered: Unanswered,
    /// The pauses between attempts; `None` after a success.
    delays: Option<ExponentialBackoff>,
    /// The store was unavailable: nothing is sent before this time.
    hold_until: Option<Instant>,
    /// When the stream opened, if that was after an outage and it may still break at once.
    opened: Option<Instant>,
    /// While stopping: handlers may run until this time.
    grace_ends: Option<Instant>,
    /// The worker has closed the stream, and opens another one when it has ended.
    is_reopening: bool,
    #[cfg(feature = "telemetry")]
    spans: Spans,
}

impl<'w, F, Fut, T> WorkerLoop<'w, F>
where
    F: FnOnce(Lease) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<T, Failure>> + Send + 'static,
    T: Into<Success>,
{
    pub(super) fn new(settings: &'w Settings, handler: F) -> Self {
        let opening = Box::pin(stream::open(settings, Duration::ZERO));
        WorkerLoop {
            settings,
            handler,
            handlers: JoinSet::new(),
            held: HeldLeases::new(),
            reading: Reading::Opening(opening),
            requests: None,
            credits: 0,
            outgoing: Outgoing::default(),
            unanswered: Unanswered::default(),
            delays: None,
            hold_until: None,
            opened: None,
            grace_ends: None,
            is_reopening: false,
            #[cfg(feature = "telemetry")]
            spans: Spans::new(),
        }
    }

    /// Runs until `shutdown`, then stops gracefully. Dropping this future stops at once: the handlers are dropped, and
    /// their leases are released or expire.
    pub(super) async fn run_until(mut self, shutdown: impl Future<Output = ()>) -> Result<()> {
        let mut shutdown = pin!(shutdown);
        let mut timer = pin!(sleep_until(self.wake_at()));
        while !self.is_done() {
            // A timer is only moved to an earlier time here; to a later one when it fires. Most leases end long before.
            if self.wake_at() < timer.deadline() {
                timer.as_mut().reset(self.wake_at());
            }
            let may_send = self.requests.is_some() && self.hold_until.is_none() && self.has_something_to_send();
            tokio::select! {
                biased;
                () = &mut shutdown, if self.grace_ends.is_none() => self.stop(),
                Some(ended) = self.handlers.join_next_with_id() => {
                    self.handler_ended(ended);
                    while let Some(ended) = self.handlers.try_join_next_with_id() {
                        self.handler_ended(ended);
                    }
                }
                event = self.reading.next() => self.on_event(event)?,
                room = room(&self.requests), if may_send => self.send(room),
                () = &mut timer => {
                    self.on_timer(Instant::now());
                    timer.as_mut().reset(self.wake_at());
                }
            }
        }
        self.close().await;
        Ok(())
    }

    fn wake_at(&self) -> Instant {
        let time_limit = self.grace_ends.map(|grace_ends| match grace_ends > Instant::now() {
            true => grace_ends,
            false => grace_ends + self.settings.client.calls.call_timeout,
        });
        let stays_open = self.opened.map(|opened| opened + STAYS_OPEN);
        [self.hold_until, stays_open, time_limit].into_iter().flatten().fold(self.held.next_due(), Instant::min)
    }

    fn has_something_to_send(&self) -> bool {
        !self.outgoing.is_empty() || self.free_places() > 0
    }

    /// Places without a handler and without an outstanding credit.
    fn free_places(&self) -> u32 {
        if self.grace_ends.is_some() {
            return 0;
        }
        let running = u32::try_from(self.handlers.len()).unwrap_or(u32::MAX);
        let free = self.settings.concurrency.saturating_sub(running).saturating_sub(self.credits);
        free.min(CREDITS_MAX - self.credits)
    }

    fn send(&mut self, room: Option<Room>) {
        let Some(room) = room else {
            // The stream is breaking. The reading side gets the error, and unanswered results are sent again.
            self.requests = None;
            return;
        };
        let credits = self.free_places();
        self.credits += credits;
        room.send(self.outgoing.next_request(credits, &mut self.unanswered));
    }

    fn on_timer(&mut self, now: Instant) {
        self.hold_until = self.hold_until.filter(|until| *until > now);
        if let Some(opened) = self.opened.take_if(|opened| *opened + STAYS_OPEN <= now)
            && let Some(away) = self.settings.client.outage.ends(opened.into_std())
        {
            tracing::info!(worker = self.settings.name, ?away, "a Work stream is open again");
        }
        let due = self.held.take_due(now, self.requests.is_some());
        self.outgoing.extends.extend(due.extend);
        for (lease, handler) in due.lost {
            self.lose(lease, &handler, Lost::Expired);
        }
        if self.grace_ends.is_some_and(|grace_ends| grace_ends <= now) {
            self.handlers.abort_all();
        }
    }

    fn handler_ended(&mut self, ended: Result<(task::Id, Result<Success, Failure>), JoinError>) {
        let (task, result) = match ended {
            Ok((task, result)) => (task, result),
            Err(error) => {
                (error.id(), Err(error.try_into_panic().map_or_else(|_| Failure::stopped(), Failure::panicked)))
            }
        };
        // A lost lease has been settled already.
        let Some(lease) = self.held.remove(task) else { return };
        match result {
            Ok(success) => match success.into_end(lease) {
                Ok(completion) => self.outgoing.completes.push_back(completion),
                Err(release) => self.outgoing.releases.push_back(release),
            },
            Err(failure) => self.outgoing.releases.push_back(failure.into_release(lease)),
        }
    }

    fn on_event(&mut self, event: StreamEvent) -> Result<()> {
        match event {
            StreamEvent::Opened(Ok(stream)) => {
                self.reading = Reading::Open(stream.responses);
                self.requests = Some(stream.requests);
                self.credits = 0;
                self.held.check_now();
                self.opened = self.settings.client.outage.is_on().then(Instant::now);
            }
            StreamEvent::Response(Ok(response)) => {
                let received = Instant::now();
                self.on_results(response.completed, response.released, response.extended)?;
                for lease in response.leases {
                    let lease = Lease::from_wire(lease);
                    match self.grace_ends {
                        None => self.start(lease, received),
                        Some(_) => self.decline(lease.lease_ref()),
                    }
                }
                for lease in response.revoked {
                    let lease = LeaseRef { id: lease.id, fencing_token: lease.fencing_token };
                    if let Some((lease, handler)) = self.held.revoke(&lease) {
                        self.lose(lease, &handler, Lost::Revoked);
                    }
                }
            }
            StreamEvent::Opened(Err(error)) => self.reconnect(error)?,
            StreamEvent::Response(Err(_)) if self.is_reopening => self.open_another(Duration::ZERO),
            StreamEvent::Response(Err(error)) => {
                self.settings.stats.reconnects.fetch_add(1, Relaxed);
                self.reconnect(error)?;
            }
        }
        Ok(())
    }

    /// The stream broke or could not be opened: opens another one, unless the error is final.
    fn reconnect(&mut self, error: Error) -> Result<()> {
        if is_final(&error) {
            return Err(error);
        }
        let delay = next_delay(&mut self.delays);
        let worker = &self.settings.name;
        match self.settings.client.outage.begins(std::time::Instant::now()) {
            true => tracing::warn!(worker, %error, "the Work stream broke; opening another until one stays open"),
            false => tracing::debug!(worker, %error, ?delay, "the Work stream broke; opening another"),
        }
        if self.settings.release_on_close {
            // The server has released the leases.
            for (lease, handler) in self.held.lose_all() {
                self.lose(lease, &handler, Lost::StreamClosed);
            }
        }
        self.open_another(delay);
        Ok(())
    }

    /// Opens another stream, for everything that has no answer.
    fn open_another(&mut self, delay: Duration) {
        self.requests = None;
        self.is_reopening = false;
        self.hold_until = None;
        self.opened = None;
        let unsent = std::mem::take(&mut self.outgoing.extends).into_iter().map(|(task, _)| task);
        let unanswered = std::mem::take(&mut self.unanswered.extends).into_iter().map(|(task, _)| task);
        let now = Instant::now();
        for task in unsent.chain(unanswered) {
            self.held.not_extended(task, now);
        }
        self.outgoing.send_again(&mut self.unanswered);
        self.reading = Reading::Opening(Box::pin(stream::open(self.settings, delay)));
    }

    fn start(&mut self, lease: Lease, received: Instant) {
        self.settings.stats.leased.fetch_add(1, Relaxed);
        self.credits = self.credits.saturating_sub(1);
        let (held, term) = (lease.lease_ref(), Term::of(&lease, self.settings.lease_ms));
        let handler = self.handler.clone();
        #[cfg(feature = "telemetry")]
        let span = self.spans.begin(&self.settings.queue, &lease);
        // The task also catches a panic in the handler's first, synchronous part.
        let running = async move { handler(lease).await.map(Into::into) };
        #[cfg(feature = "telemetry")]
        let running = opentelemetry::trace::FutureExt::with_context(running, span);
        let task = self.handlers.spawn(running);
        self.held.insert(task, held, term, received);
    }

    fn lose(&mut self, lease: LeaseRef, handler: &task::AbortHandle, cause: Lost) {
        handler.abort();
        self.settle(&lease, Outcome::Lost(cause));
    }

    /// The results of what was sent, each kind in the order in which it was sent.
    fn on_results(
        &mut self,
        completed: Vec<wire::TransitionResult>,
        released: Vec<wire::TransitionResult>,
        extended: Vec<wire::LeaseExtensionResult>,
    ) -> Result<()> {
        let unexpected = || Error::Protocol("a result for an item that was not sent".to_owned());
        for result in completed {
            let completion = self.unanswered.completes.pop_front().ok_or_else(unexpected)?;
            match self.settled(&completion.lease, Transition::from_result(result), Outcome::Completed) {
                Settled::Done => {}
                Settled::Retry => self.outgoing.completes.push_back(completion),
            }
        }
        for result in released {
            let release = self.unanswered.releases.pop_front().ok_or_else(unexpected)?;
            match self.settled(&release.lease, Transition::from_result(result), Outcome::Released) {
                Settled::Done => {}
                Settled::Retry => self.outgoing.releases.push_back(release),
            }
        }
        for result in extended {
            let (task, requested_at) = self.unanswered.extends.pop_front().ok_or_else(unexpected)?;
            match extension_result(result) {
                Ok(extended) => {
                    self.delays = None;
                    self.settings.stats.extended.fetch_add(1, Relaxed);
                    self.held.extended(task, requested_at, extended.lease_expires_at_ms);
                }
                Err(refused) if refused.is_unavailable() => {
                    let retry_at = self.hold();
                    self.held.not_extended(task, retry_at);
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

    /// Ends what this worker knows of a lease.
    fn settle(&mut self, lease: &LeaseRef, outcome: Outcome) {
        #[cfg(feature = "telemetry")]
        self.spans.end(lease, &outcome);
        self.settings.settle(lease, outcome);
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
                self.settle(lease, ok(transition));
            }
            Err(refused) if refused.is_unavailable() => {
                self.hold();
                return Settled::Retry;
            }
            Err(refused) => self.settle(lease, Outcome::Lost(Lost::Refused(refused))),
        }
        Settled::Done
    }

    /// The store is unavailable: pauses before the next request. Returns the end of the pause.
    fn hold(&mut self) -> Instant {
        let delays = &mut self.delays;
        *self.hold_until.get_or_insert_with(|| Instant::now() + next_delay(delays))
    }
}

/// Whether a result was final.
enum Settled {
    Done,
    Retry,
}

/// Waits until there is room for one request; `None`: the stream broke.
async fn room(requests: &Option<Requests>) -> Option<Room> {
    match requests {
        Some(requests) => requests.room().await,
        None => None,
    }
}

/// Whether opening another stream is pointless. A refusal with a delay says that it is not.
fn is_final(error: &Error) -> bool {
    use tonic::Code;
    error.refused().is_some_and(|refused| {
        let is_final = matches!(
            refused.code,
            Code::InvalidArgument
                | Code::NotFound
                | Code::PermissionDenied
                | Code::Unauthenticated
                | Code::Unimplemented
        );
        is_final && refused.retry_after.is_none()
    })
}
