//! The connection: where to, how long to wait, how long to repeat.

use crate::connector::connector;
use crate::error::{Error, Result};
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use std::time::Duration;
use tallystone_proto::history::v1::history_client::HistoryClient;
use tallystone_proto::queue::v1::{queue_admin_client::QueueAdminClient, queue_client::QueueClient};
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};

/// A thousand messages of 32 KiB, the largest answer there is, with room for their metadata.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// One connection to a Tallystone server, shared by all its clones: clone it freely.
///
/// It connects again by itself. A call that finds the server [unavailable](Error::Unavailable) is repeated, with
/// jittered exponential backoff, for [`retry_for`](ClientBuilder::retry_for); that is safe because
/// [every call is idempotent](crate#every-call-can-be-repeated).
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) queue: QueueClient<Channel>,
    pub(crate) admin: QueueAdminClient<Channel>,
    pub(crate) history: HistoryClient<Channel>,
    pub(crate) patience: Patience,
}

/// How long calls may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// One attempt of one call.
    pub(crate) call_timeout: Duration,
    /// All attempts and the pauses between them.
    pub(crate) retry_for: Duration,
}

/// Makes a [`Client`]; see [`Client::builder`].
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    url: String,
    patience: Patience,
}

impl Client {
    /// Connects to `http://host:port`.
    ///
    /// Fails at once with [`Error::Connect`] where nobody listens; [`ClientBuilder::connect_lazy`] does not.
    pub async fn connect(url: impl Into<String>) -> Result<Client> {
        Client::builder(url).connect().await
    }

    /// A client to be, with other than the default patience.
    pub fn builder(url: impl Into<String>) -> ClientBuilder {
        let patience = Patience { call_timeout: Duration::from_secs(10), retry_for: Duration::from_secs(30) };
        ClientBuilder { url: url.into(), patience }
    }

    /// The same connection with another limit for one attempt of a call.
    #[must_use]
    pub fn with_call_timeout(&self, call_timeout: Duration) -> Client {
        Client { patience: Patience { call_timeout, ..self.patience }, ..self.clone() }
    }

    /// The same connection with another limit for all attempts of a call; zero: never repeat.
    #[must_use]
    pub fn with_retry_for(&self, retry_for: Duration) -> Client {
        Client { patience: Patience { retry_for, ..self.patience }, ..self.clone() }
    }

    /// Makes one call: a deadline on each attempt, attempts until the answer is other than unavailable.
    /// `wait` is the time that the server is asked to wait before it answers.
    pub(crate) async fn call<Req, Res, F, Fut>(&self, wait: Duration, request: Req, rpc: F) -> Result<Res>
    where
        Req: Clone,
        F: Fn(tonic::Request<Req>) -> Fut,
        Fut: Future<Output = Result<tonic::Response<Res>, tonic::Status>>,
    {
        let timeout = self.patience.call_timeout + wait;
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
            if !error.is_unavailable() || started.elapsed() + delay > self.patience.retry_for {
                return Err(error);
            }
            tracing::debug!(%error, ?delay, "repeating a call");
            tokio::time::sleep(delay).await;
        }
    }
}

impl ClientBuilder {
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
    pub async fn connect(self) -> Result<Client> {
        let channel = self
            .endpoint()?
            .connect_with_connector(connector(self.patience.call_timeout))
            .await
            .map_err(|error| self.connect_error(&error))?;
        Ok(self.client(channel))
    }

    /// Connects with the first call. Must be called within a tokio runtime.
    pub fn connect_lazy(self) -> Result<Client> {
        let channel = self.endpoint()?.connect_with_connector_lazy(connector(self.patience.call_timeout));
        Ok(self.client(channel))
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

    fn client(&self, channel: Channel) -> Client {
        Client {
            queue: QueueClient::new(channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX),
            admin: QueueAdminClient::new(channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX),
            history: HistoryClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX),
            patience: self.patience,
        }
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

/// A new id: unique, and rising with time.
pub(crate) fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// Milliseconds for the wire; what does not fit is refused there like any other number out of bounds.
pub(crate) fn wire_ms(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

/// Milliseconds or counts from the wire, never negative.
pub(crate) fn from_wire(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// A method of a generated client, as [`Client::call`] wants it.
macro_rules! rpc {
    ($service:expr, $method:ident) => {
        |request| {
            let mut service = $service.clone();
            async move { service.$method(request).await }
        }
    };
}
pub(crate) use rpc;
