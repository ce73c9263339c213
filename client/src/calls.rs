//! How both clients make a call: its time limits, repetition while no server is available, and hedging (decision 0052).

use crate::credentials::Token;
use crate::error::{Applied, Error, Refused, Result};
use crate::hedge::Hedging;
use crate::servers::Servers;
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use std::any::Any;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tallystone_proto::queue::v1::{DequeueRequest, DequeueResponse};
use tokio::time::{Instant, sleep, timeout};

/// A longer time limit counts as this one, ten years. Sums of limits then fit into every clock, and gRPC has a format for them.
pub(crate) const LIMIT_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The limits of the calls of a client, and where they go. Clones share the servers and the budget of hedges.
#[derive(Clone, Debug)]
pub struct Calls {
    /// One attempt of one call.
    pub(crate) call_timeout: Duration,
    /// All attempts of one call and the pauses between them.
    pub(crate) retry_for: Duration,
    pub(crate) servers: Arc<Servers>,
    pub(crate) hedging: Option<Arc<Hedging>>,
    pub(crate) token: Option<Arc<Token>>,
}

impl Calls {
    /// The same for a call that sets a value. An attempt that a hedge has overtaken could arrive later than the caller's next call,
    /// and undo it.
    pub(crate) fn unhedged(&self) -> Calls {
        Calls { hedging: None, ..self.clone() }
    }

    /// [`send`](Calls::send) for a call that changes nothing: no attempt of it has an effect.
    pub(crate) async fn read<Req, Res, F, Fut>(&self, wait: Duration, request: Req, rpc: F) -> Result<Responded<Res>>
    where
        Req: Clone + 'static,
        Res: 'static,
        F: Fn(usize, tonic::Request<Req>) -> Fut,
        Fut: Future<Output = Result<tonic::Response<Res>, tonic::Status>>,
    {
        match self.send(wait, request, rpc).await {
            Ok(Responded { response, .. }) => Ok(Responded::of_all(response)),
            Err(Error::Refused(refused)) => Err(Error::Refused(Refused { applied: Applied::No, ..refused })),
            Err(error) => Err(error),
        }
    }

    /// Makes one call: each attempt has a deadline, and attempts continue until a server is available or `retry_for` has
    /// passed; the error speaks for all of them. `wait` is how long the request allows the server to wait before it answers.
    /// `rpc` sends the request to the server of this number.
    pub(crate) async fn send<Req, Res, F, Fut>(&self, wait: Duration, request: Req, rpc: F) -> Result<Responded<Res>>
    where
        Req: Clone + 'static,
        Res: 'static,
        F: Fn(usize, tonic::Request<Req>) -> Fut,
        Fut: Future<Output = Result<tonic::Response<Res>, tonic::Status>>,
    {
        let started = Instant::now();
        let mut delays = None;
        let mut may_have_acted = false;
        loop {
            let failed = match self.attempt(wait, &request, &rpc).await {
                Ok(answer) => return Ok(Responded { unanswered: answer.unanswered | may_have_acted, ..answer }),
                Err(failed) => failed,
            };
            may_have_acted |= failed.may_have_acted;
            let delay = match failed.may_succeed_after() {
                Some(least) => least + next_delay(&mut delays),
                None => return Err(failed.error.of_call(may_have_acted)),
            };
            if started.elapsed() + delay > self.retry_for {
                return Err(failed.of_all_attempts(may_have_acted));
            }
            tracing::debug!(error = %failed.error, ?delay, "repeating a call");
            sleep(delay).await;
        }
    }

    /// One attempt, and a second one through another server where the first has no answer in time and the budget allows it.
    /// The first answer counts, but for a Dequeue that found nothing: the other attempt may have leased messages, which no worker
    /// would run until their leases expire.
    async fn attempt<Req, Res, F, Fut>(&self, wait: Duration, request: &Req, rpc: &F) -> Result<Responded<Res>, Failed>
    where
        Req: Clone + 'static,
        Res: 'static,
        F: Fn(usize, tonic::Request<Req>) -> Fut,
        Fut: Future<Output = Result<tonic::Response<Res>, tonic::Status>>,
    {
        let limit = self.call_timeout.saturating_add(wait).min(LIMIT_MAX);
        let server = self.servers.preferred();
        let mut first = pin!(self.one(server, limit, request, rpc));
        let Some(hedging) = &self.hedging else { return first.await.map(Responded::of_all) };
        hedging.earn();
        let mut after = wait.saturating_add(hedging.after());
        loop {
            if let Ok(answer) = timeout(after, &mut first).await {
                return answer.map(Responded::of_all);
            }
            if hedging.spend() {
                break;
            }
            after = hedging.after();
        }
        let other = self.servers.next_of(server);
        let hedge = without_wait(request);
        let mut second = pin!(self.one(other, limit, &hedge, rpc));
        let (answer, is_first) = tokio::select! {
            answer = &mut first => (answer, true),
            answer = &mut second => (answer, false),
        };
        if !is_first && !answer.as_ref().is_err_and(Failed::is_no_answer) {
            self.servers.replace_preferred(server, other);
        }
        let late = async { if is_first { second.await } else { first.await } };
        match answer {
            Err(failed) if failed.is_no_answer() => match late.await {
                Ok(response) => Ok(Responded { response, unanswered: failed.may_have_acted }),
                Err(last) => Err(last.and(&failed)),
            },
            Ok(empty) if found_nothing(&empty) => Ok(Responded::of_all(late.await.unwrap_or(empty))),
            Ok(response) => Ok(Responded { response, unanswered: true }),
            Err(failed) => Err(Failed { may_have_acted: true, ..failed }),
        }
    }

    /// Sends the request once.
    async fn one<Req, Res, F, Fut>(&self, server: usize, limit: Duration, request: &Req, rpc: &F) -> Result<Res, Failed>
    where
        Req: Clone,
        F: Fn(usize, tonic::Request<Req>) -> Fut,
        Fut: Future<Output = Result<tonic::Response<Res>, tonic::Status>>,
    {
        let mut attempt = tonic::Request::new(request.clone());
        // The server gets the deadline too, and stops working when the caller no longer waits.
        attempt.set_timeout(limit);
        if let Some(token) = &self.token {
            token.add_to(&mut attempt);
        }
        #[cfg(feature = "telemetry")]
        crate::trace::add_to(attempt.metadata_mut());
        let error = match timeout(limit, rpc(server, attempt)).await {
            Ok(Ok(response)) => return Ok(response.into_inner()),
            Ok(Err(status)) => Error::from_status(&status),
            Err(_) => Error::deadline(limit),
        };
        if error.is_unavailable() {
            self.servers.replace_preferred(server, self.servers.next_of(server));
        }
        let may_have_acted = matches!(error, Error::Unavailable { applied: Applied::Unknown, .. });
        Err(Failed { error, may_have_acted })
    }
}

/// The request of a second attempt. If it is a Dequeue, its wait is over.
fn without_wait<Req: Clone + 'static>(request: &Req) -> Req {
    let mut hedge = request.clone();
    let any: &mut dyn Any = &mut hedge;
    if let Some(dequeue) = any.downcast_mut::<DequeueRequest>() {
        dequeue.wait_ms = 0;
    }
    hedge
}

/// Whether this is the answer of a Dequeue without leases.
fn found_nothing<Res: 'static>(response: &Res) -> bool {
    let any: &dyn Any = response;
    any.downcast_ref::<DequeueResponse>().is_some_and(|response| response.leases.is_empty())
}

/// The answer to a call.
pub(crate) struct Responded<Res> {
    pub(crate) response: Res,
    /// Whether another attempt has none, and may still act.
    pub(crate) unanswered: bool,
}

impl<Res> Responded<Res> {
    /// Of a call whose attempts all have one.
    fn of_all(response: Res) -> Self {
        Responded { response, unanswered: false }
    }
}

/// An attempt that failed.
struct Failed {
    error: Error,
    may_have_acted: bool,
}

impl Failed {
    /// How long to wait at least before the call is repeated; `None`: the same call would fail again.
    fn may_succeed_after(&self) -> Option<Duration> {
        match &self.error {
            Error::Unavailable { .. } => Some(Duration::ZERO),
            Error::Refused(Refused { retry_after, .. }) => *retry_after,
            _ => None,
        }
    }

    /// Whether another attempt of the same call may still be answered.
    fn is_no_answer(&self) -> bool {
        self.may_succeed_after().is_some()
    }

    /// The error of this attempt, which speaks for an earlier one too.
    fn and(mut self, earlier: &Failed) -> Failed {
        self.may_have_acted |= earlier.may_have_acted;
        self
    }

    /// The error of the call: the last attempt's, which may not say that nothing changed if an earlier one may have acted.
    fn of_all_attempts(self, may_have_acted: bool) -> Error {
        match self.error {
            Error::Unavailable { message, .. } | Error::Refused(Refused { message, .. }) if may_have_acted => {
                Error::Unavailable { applied: Applied::Unknown, message }
            }
            error => error,
        }
    }
}

/// The next pause of an exponential sequence from 50 ms to 1 s. Each is longer by a random part of itself, at most
/// doubled, so that many clients do not return at the same moment. `None` starts the sequence.
pub(crate) fn next_delay(delays: &mut Option<ExponentialBackoff>) -> Duration {
    let start = || {
        ExponentialBuilder::new()
            .with_min_delay(Duration::from_millis(50))
            .with_max_delay(Duration::from_secs(1))
            .without_max_times()
            .with_jitter()
            .build()
    };
    delays.get_or_insert_with(start).next().unwrap_or(Duration::from_secs(1))
}

/// A method of a generated client, as [`Calls::send`] takes it.
macro_rules! rpc {
    ($service:expr, $method:ident) => {
        |server, request| {
            let mut service = $service.on(server);
            async move { service.$method(request).await }
        }
    };
}
pub(crate) use rpc;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::hedge::Hedge;
    use crate::lease::Dequeue;
    use crate::wire::from_wire;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use tallystone_proto::queue::v1::Lease;
    use tonic::{Code, Request, Response, Status};

    const MS: Duration = Duration::from_millis(1);

    /// The calls of a client with two servers. The first one gets each call, and the other one its hedge after 100 ms.
    fn hedged() -> Calls {
        let servers = Arc::new(Servers::new(2, 0));
        let hedging = Some(Arc::new(Hedging::new(Hedge::after(100 * MS))));
        Calls { call_timeout: 10_000 * MS, retry_for: Duration::ZERO, servers, hedging, token: None }
    }

    /// How many leases a Dequeue returns, and after how many milliseconds. Each server answers after so many of them, with so
    /// many leases; `None`: that it is unavailable.
    async fn dequeue(answers: [(u32, Option<usize>); 2]) -> (usize, u128) {
        let rpc = move |server: usize, _: Request<DequeueRequest>| async move {
            let (after, leases) = answers[server];
            sleep(after * MS).await;
            leases
                .map(|leases| Response::new(DequeueResponse { leases: vec![Lease::default(); leases] }))
                .ok_or_else(|| Status::unavailable("it stops"))
        };
        let started = Instant::now();
        let response = hedged().send(Duration::ZERO, DequeueRequest::default(), rpc).await.expect("an answer").response;
        (response.leases.len(), started.elapsed().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn o8_a_dequeue_that_found_nothing_waits_for_the_attempt_that_may_have_leased() {
        for (answers, expected) in [
            ([(150, Some(0)), (200, Some(1))], (1, 300)),
            ([(400, Some(1)), (50, Some(0))], (1, 400)),
            // Both found nothing.
            ([(150, Some(0)), (200, Some(0))], (0, 300)),
            ([(400, Some(0)), (50, Some(0))], (0, 400)),
            // The other attempt fails, or its time is over.
            ([(150, Some(0)), (200, None)], (0, 300)),
            ([(400, None), (50, Some(0))], (0, 400)),
            ([(60_000, Some(1)), (50, Some(0))], (0, 10_000)),
            // The first leases count.
            ([(150, Some(1)), (200, Some(2))], (1, 150)),
            ([(400, Some(1)), (50, Some(2))], (2, 150)),
        ] {
            assert_eq!(dequeue(answers).await, expected, "{answers:?}");
        }
    }

    /// What is known of a call that is refused. Each attempt is answered after so many milliseconds; `None`: it fails, and may have acted.
    async fn refused_after(calls: Calls, attempts: &'static [(u32, Option<Code>)]) -> Applied {
        let made = AtomicUsize::new(0);
        let rpc = |_: usize, _: Request<DequeueRequest>| {
            let (after, refusal) = attempts[made.fetch_add(1, Relaxed)];
            async move {
                sleep(after * MS).await;
                Err::<Response<DequeueResponse>, _>(match refusal {
                    Some(code) => Status::new(code, "it is full"),
                    None => Status::unavailable("it stops"),
                })
            }
        };
        let error = calls.send(Duration::ZERO, DequeueRequest::default(), rpc).await.map(drop).expect_err("refused");
        assert_eq!(made.into_inner(), attempts.len());
        error.refused().expect("a refusal").applied
    }

    #[tokio::test(start_paused = true)]
    async fn q8_a_refusal_says_whether_another_attempt_may_still_act() {
        const FULL: Option<Code> = Some(Code::ResourceExhausted);
        let one_by_one = || Calls { retry_for: 1_000 * MS, hedging: None, ..hedged() };
        assert_eq!(refused_after(one_by_one(), &[(1, FULL)]).await, Applied::No);
        assert_eq!(refused_after(one_by_one(), &[(1, None), (1, FULL)]).await, Applied::Unknown);
        assert_eq!(refused_after(hedged(), &[(50, FULL)]).await, Applied::No);
        // The hedge is refused while the first attempt has no answer, and the other way round.
        assert_eq!(refused_after(hedged(), &[(400, FULL), (50, FULL)]).await, Applied::Unknown);
        assert_eq!(refused_after(hedged(), &[(150, FULL), (400, FULL)]).await, Applied::Unknown);
        assert_eq!(refused_after(hedged(), &[(400, FULL), (50, None)]).await, Applied::Unknown);
    }

    #[tokio::test(start_paused = true)]
    async fn o8_a_hedge_of_a_dequeue_does_not_wait_again() {
        let rpc = |server: usize, request: Request<DequeueRequest>| async move {
            let waited = Duration::from_millis(from_wire(request.get_ref().wait_ms));
            let late = [300 * MS, MS][server];
            sleep(waited + late).await;
            Ok::<_, Status>(Response::new(DequeueResponse::default()))
        };
        let request = DequeueRequest { wait_ms: 20_000, ..DequeueRequest::default() };
        let (calls, started) = (hedged(), Instant::now());
        calls.send(20_000 * MS, request, rpc).await.expect("an answer");
        assert_eq!(started.elapsed(), 20_300 * MS);
        assert_eq!(calls.servers.preferred(), 1, "the other server has answered first");
    }

    #[tokio::test]
    async fn q8_a_time_limit_may_be_as_long_as_its_type_allows() {
        let builder = Client::builder("http://127.0.0.1:1").call_timeout(Duration::MAX);
        let client = builder.hedge(Hedge::after(Duration::MAX)).connect_lazy().expect("an address");
        let request = Dequeue::new("q").wait_ms(u64::MAX).into_wire();
        let wait = Duration::from_millis(from_wire(request.wait_ms));
        let rpc = |_: usize, request: Request<DequeueRequest>| async move {
            assert!(request.metadata().contains_key("grpc-timeout"));
            Ok::<_, Status>(Response::new(DequeueResponse::default()))
        };
        for (calls, wait) in [
            (client.calls.clone(), Duration::ZERO),
            (client.calls.clone(), wait),
            (client.with_call_timeout(10_000 * MS).calls, wait),
            (client.with_call_timeout(Duration::MAX).calls, Duration::MAX),
        ] {
            assert!(calls.call_timeout <= LIMIT_MAX);
            calls.send(wait, request.clone(), rpc).await.expect("an answer");
        }
    }
}
