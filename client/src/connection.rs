//! What the clients share: how a connection is made, how long a call may take, when it is repeated.

use crate::connector::connector;
use crate::error::{Error, Result};
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use std::marker::PhantomData;
use std::time::Duration;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};

/// A thousand messages of 32 KiB, the largest answer there is, with room for their metadata.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How long calls may take.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// One attempt of one call.
    pub(crate) call_timeout: Duration,
    /// All attempts and the pauses between them.
    pub(crate) retry_for: Duration,
}

impl Patience {
    /// Makes one call: a deadline on each attempt, attempts until the answer is other than unavailable.
    /// `wait` is the time that the server is asked to wait before it answers.
    pub(crate) async fn call<Req, Res, F, Fut>(&self, wait: Duration, request: Req, rpc: F) -> Result<Res>
    where
        Req: Clone,
        F: Fn(tonic::Request<Req>) -> Fut,
        Fut: Future<Output = Result<tonic::Response<Res>, tonic::Status>>,
    {
        let timeout = self.call_timeout + wait;
        let started = Instant::now();
        let mut delays = None;
        loop {
            let mut attempt = tonic::Request::new(request.clone());
            // The server learns the deadline too, and stops working for a caller that has gone.
            attempt.set_timeout(timeout);
            let error = match tokio::time::timeout(timeout, rpc(attempt)).await {
                Ok(Ok(response)) => return Ok(response.into_inner()),
                Ok(Err(status)) => Error::from_status(&status),
                Err(_) => Error::deadline(timeout),
            };
            let delay = next_delay(&mut delays);
            if !error.is_unavailable() || started.elapsed() + delay > self.retry_for {
                return Err(error);
            }
            tracing::debug!(%error, ?delay, "repeating a call");
            tokio::time::sleep(delay).await;
        }
    }
}

/// The next pause of an exponential sequence from about 50 ms to about 2 s, each longer by a random part of
/// itself, so that many clients do not come back in step. `None` starts the sequence.
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

/// What a [`ClientBuilder`] can make.
pub trait OverChannel {
    /// A client over a connection that was made, or will be with the first call.
    fn over(channel: Channel, patience: Patience) -> Self;
}

/// Makes a [`Client`](crate::Client) or a [`CounterClient`](crate::CounterClient); see their `builder`.
#[derive(Clone, Debug)]
pub struct ClientBuilder<C = crate::Client> {
    url: String,
    patience: Patience,
    client: PhantomData<fn() -> C>,
}

impl<C: OverChannel> ClientBuilder<C> {
    pub(crate) fn new(url: impl Into<String>) -> Self {
        let patience = Patience { call_timeout: Duration::from_secs(10), retry_for: Duration::from_secs(30) };
        ClientBuilder { url: url.into(), patience, client: PhantomData }
    }

    /// How long one attempt of a call may take; a Dequeue may take its `wait_ms` more. Default 10 s.
    #[must_use]
    pub fn call_timeout(mut self, call_timeout: Duration) -> Self {
        self.patience.call_timeout = call_timeout;
        self
    }

    /// How long a call is repeated while the server is unavailable; zero: never. Default 30 s.
    #[must_use]
    pub fn retry_for(mut self, retry_for: Duration) -> Self {
        self.patience.retry_for = retry_for;
        self
    }

    /// Connects now; [`Error::Connect`] where nobody listens.
    pub async fn connect(self) -> Result<C> {
        let channel = self
            .endpoint()?
            .connect_with_connector(connector(self.patience.call_timeout))
            .await
            .map_err(|error| self.connect_error(&error))?;
        Ok(C::over(channel, self.patience))
    }

    /// Connects with the first call. Must be called within a tokio runtime.
    pub fn connect_lazy(self) -> Result<C> {
        let channel = self.endpoint()?.connect_with_connector_lazy(connector(self.patience.call_timeout));
        Ok(C::over(channel, self.patience))
    }

    fn endpoint(&self) -> Result<Endpoint> {
        let endpoint = Endpoint::from_shared(self.url.clone()).map_err(|error| self.connect_error(&error))?;
        if endpoint.uri().scheme_str() != Some("http") {
            // Anything else would be spoken in plain text, too, and look as if it were not.
            let message = "only http:// is spoken; put a proxy in front for TLS".to_owned();
            return Err(Error::Connect { url: self.url.clone(), message });
        }
        let endpoint = endpoint
            .user_agent(concat!("tallystone-client/", env!("CARGO_PKG_VERSION")))
            .map_err(|error| self.connect_error(&error))?;
        Ok(endpoint
            .connect_timeout(self.patience.call_timeout)
            // A peer that vanished without a word is noticed, under an idle Work stream too.
            .http2_keep_alive_interval(Duration::from_secs(10))
            .keep_alive_timeout(Duration::from_secs(10))
            .keep_alive_while_idle(true)
            .initial_stream_window_size(1024 * 1024)
            .initial_connection_window_size(8 * 1024 * 1024))
    }

    fn connect_error(&self, error: &dyn std::error::Error) -> Error {
        // The error of the transport says only "transport error"; its sources say what happened.
        let mut innermost = error;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        Error::Connect { url: self.url.clone(), message: innermost.to_string() }
    }
}

/// A method of a generated client, as [`Patience::call`] wants it.
macro_rules! rpc {
    ($service:expr, $method:ident) => {
        |request| {
            let mut service = $service.clone();
            async move { service.$method(request).await }
        }
    };
}
pub(crate) use rpc;
