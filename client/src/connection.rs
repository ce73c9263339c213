//! What both clients share: connecting, the time limits of a call, and repeating it.

use crate::connector::connector;
use crate::error::{Applied, Error, Result};
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use std::marker::PhantomData;
use std::time::Duration;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};

/// The largest response is a thousand messages of 32 KiB with their metadata.
pub(crate) const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How long a call may take.
#[derive(Clone, Copy, Debug)]
pub struct CallLimits {
    /// One attempt of one call.
    pub(crate) call_timeout: Duration,
    /// All attempts of one call and the pauses between them.
    pub(crate) retry_for: Duration,
}

impl CallLimits {
    /// Makes one call: each attempt has a deadline, and attempts go on until the server is available or `retry_for` has
    /// passed; the error speaks for all of them. `wait` is how long the request allows the server to wait before it answers.
    pub(crate) async fn call<Req, Res, F, Fut>(&self, wait: Duration, request: Req, rpc: F) -> Result<Res>
    where
        Req: Clone,
        F: Fn(tonic::Request<Req>) -> Fut,
        Fut: Future<Output = Result<tonic::Response<Res>, tonic::Status>>,
    {
        let timeout = self.call_timeout + wait;
        let started = Instant::now();
        let mut delays = None;
        let mut may_have_acted = false;
        loop {
            let mut attempt = tonic::Request::new(request.clone());
            // The server gets the deadline too, and stops working when the caller no longer waits.
            attempt.set_timeout(timeout);
            let error = match tokio::time::timeout(timeout, rpc(attempt)).await {
                Ok(Ok(response)) => return Ok(response.into_inner()),
                Ok(Err(status)) => Error::from_status(&status),
                Err(_) => Error::deadline(timeout),
            };
            may_have_acted |= matches!(error, Error::Unavailable { applied: Applied::Unknown, .. });
            let error = match error {
                Error::Unavailable { message, .. } if may_have_acted => {
                    Error::Unavailable { applied: Applied::Unknown, message }
                }
                other => other,
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

/// A client that a [`ClientBuilder`] can make.
pub trait FromChannel {
    /// A client that uses this connection, which is open or opens with the first call. `connect` makes further ones to the
    /// same server; each opens with its first call.
    fn from_channel(
        channel: Channel,
        limits: CallLimits,
        connect: impl Fn() -> Channel + Send + Sync + 'static,
    ) -> Self;
}

/// Makes a [`Client`](crate::Client) or a [`CounterClient`](crate::CounterClient); get one from their `builder`.
#[derive(Clone, Debug)]
pub struct ClientBuilder<C> {
    url: String,
    limits: CallLimits,
    client: PhantomData<fn() -> C>,
}

impl<C: FromChannel> ClientBuilder<C> {
    /// An address without a scheme, `HOST:PORT`, is one of `http://`.
    pub(crate) fn new(url: impl Into<String>) -> Self {
        let limits = CallLimits { call_timeout: Duration::from_secs(10), retry_for: Duration::from_secs(30) };
        let url = url.into();
        let url = if url.contains("://") { url } else { format!("http://{url}") };
        ClientBuilder { url, limits, client: PhantomData }
    }

    /// How long one attempt of a call may take; a Dequeue may take its `wait_ms` longer. Default 10 s.
    #[must_use]
    pub fn call_timeout(mut self, call_timeout: Duration) -> Self {
        self.limits.call_timeout = call_timeout;
        self
    }

    /// How long a call is repeated while the server is unavailable; zero: never. Default 30 s.
    #[must_use]
    pub fn retry_for(mut self, retry_for: Duration) -> Self {
        self.limits.retry_for = retry_for;
        self
    }

    /// Checks the URL, and connects to nothing.
    ///
    /// # Errors
    /// [`Error::Connect`] if the URL is invalid.
    pub fn check(&self) -> Result<()> {
        self.endpoint().map(drop)
    }

    /// Connects now.
    ///
    /// # Errors
    /// [`Error::Connect`] if the URL is invalid, or no server accepts the connection.
    pub async fn connect(self) -> Result<C> {
        let endpoint = self.endpoint()?;
        let timeout = self.limits.call_timeout;
        let channel = endpoint.connect_with_connector(connector(timeout)).await;
        let channel = channel.map_err(|error| self.connect_error(&error))?;
        Ok(C::from_channel(channel, self.limits, move || endpoint.connect_with_connector_lazy(connector(timeout))))
    }

    /// Connects with the first call. Call it within a tokio runtime.
    ///
    /// # Errors
    /// [`Error::Connect`] if the URL is invalid.
    pub fn connect_lazy(self) -> Result<C> {
        let (endpoint, timeout) = (self.endpoint()?, self.limits.call_timeout);
        let connect = move || endpoint.connect_with_connector_lazy(connector(timeout));
        Ok(C::from_channel(connect(), self.limits, connect))
    }

    fn endpoint(&self) -> Result<Endpoint> {
        let endpoint = Endpoint::from_shared(self.url.clone()).map_err(|error| self.connect_error(&error))?;
        if endpoint.uri().scheme_str() != Some("http") {
            // The connection would be plain text under any scheme; `https` must not hide that.
            let message = "only http:// is supported; for TLS, put a proxy in front".to_owned();
            return Err(Error::Connect { url: self.url.clone(), message });
        }
        let endpoint = endpoint
            .user_agent(concat!("tallystone-client/", env!("CARGO_PKG_VERSION")))
            .map_err(|error| self.connect_error(&error))?;
        Ok(endpoint
            .connect_timeout(self.limits.call_timeout)
            // Detects a peer that vanished without closing the connection, even under an idle Work stream.
            .http2_keep_alive_interval(Duration::from_secs(10))
            .keep_alive_timeout(Duration::from_secs(10))
            .keep_alive_while_idle(true)
            .initial_stream_window_size(1024 * 1024)
            .initial_connection_window_size(8 * 1024 * 1024))
    }

    fn connect_error(&self, error: &dyn std::error::Error) -> Error {
        // The transport's own message is only "transport error"; the innermost source has the cause.
        let mut innermost = error;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        Error::Connect { url: self.url.clone(), message: innermost.to_string() }
    }
}

/// A method of a generated client, as [`CallLimits::call`] takes it.
macro_rules! rpc {
    ($service:expr, $method:ident) => {
        |request| {
            let mut service = $service.clone();
            async move { service.$method(request).await }
        }
    };
}
pub(crate) use rpc;
