//! How both clients make a call: its time limits, repetition while no server is available, and hedging (decision 0052).

use crate::credentials::Token;
use crate::error::{Applied, Error, Refused, Result};
use crate::hedge::Hedging;
use crate::servers::Servers;
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

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

    /// Makes one call: each attempt has a deadline, and attempts continue until a server is available or `retry_for` has
    /// passed; the error speaks for all of them. `wait` is how long the request allows the server to wait before it answers.
    /// `rpc` sends the request to the server of this number.
    pub(crate) async fn send<Req, Res, F, Fut>(&self, wait: Duration, request: Req, rpc: F) -> Result<Res>
    where
        Req: Clone,
        F: Fn(usize, tonic::Request<Req>) -> Fut,
        Fut: Future<Output = Result<tonic::Response<Res>, tonic::Status>>,
    {
        let started = Instant::now();
        let mut delays = None;
        let mut may_have_acted = false;
        loop {
            let failed = match self.attempt(wait, &request, &rpc).await {
                Ok(response) => return Ok(response),
                Err(failed) => failed,
            };
            may_have_acted |= failed.may_have_acted;
            let delay = match failed.may_succeed_after() {
                Some(least) => least + next_delay(&mut delays),
                None => return Err(failed.error),
            };
            if started.elapsed() + delay > self.retry_for {
                return Err(failed.of_all_attempts(may_have_acted));
            }
            tracing::debug!(error = %failed.error, ?delay, "repeating a call");
            sleep(delay).await;
        }
    }

    /// One attempt, and a second one through another server where the first has no answer in time and the budget allows it.
    /// The first answer counts.
    async fn attempt<Req, Res, F, Fut>(&self, wait: Duration, request: &Req, rpc: &F) -> Result<Res, Failed>
    where
        Req: Clone,
        F: Fn(usize, tonic::Request<Req>) -> Fut,
        Fut: Future<Output = Result<tonic::Response<Res>, tonic::Status>>,
    {
        let limit = self.call_timeout + wait;
        let server = self.servers.preferred();
        let mut first = pin!(self.one(server, limit, request, rpc));
        let Some(hedging) = &self.hedging else { return first.await };
        hedging.earn();
        let mut after = wait + hedging.after();
        loop {
            if let Ok(answer) = timeout(after, &mut first).await {
                return answer;
            }
            if hedging.spend() {
                break;
            }
            after = hedging.after();
        }
        let other = self.servers.next_of(server);
        let mut second = pin!(self.one(other, limit, request, rpc));
        tokio::select! {
            answer = &mut first => match answer {
                Err(failed) if failed.is_no_answer() => second.await.map_err(|last| last.and(&failed)),
                answer => answer,
            },
            answer = &mut second => match answer {
                Err(failed) if failed.is_no_answer() => first.await.map_err(|last| last.and(&failed)),
                answer => {
                    self.servers.replace_preferred(server, other);
                    answer
                }
            },
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
