//! Connecting to the servers of a client.

use crate::calls::Calls;
use crate::connector::connector;
use crate::credentials::{Credentials, TokenSource};
use crate::error::{Error, Result};
use crate::hedge::{Hedge, Hedging};
use crate::servers::Servers;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

/// The largest response is a thousand messages of 32 KiB with their metadata.
pub(crate) const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A client that a [`ClientBuilder`] can make.
pub trait FromConnections {
    /// A client of these connections, one for each server of `calls`; each is open or opens with its first call. `connect`
    /// makes further ones to the first server, which open likewise.
    fn from_connections(
        connections: &[Channel],
        calls: Calls,
        connect: impl Fn() -> Channel + Send + Sync + 'static,
    ) -> Self;
}

/// Makes a [`Client`](crate::Client) or a [`CounterClient`](crate::CounterClient); get one from their `builder`.
#[derive(Clone, Debug)]
pub struct ClientBuilder<C> {
    urls: Vec<String>,
    call_timeout: Duration,
    retry_for: Duration,
    hedge: Option<Hedge>,
    credentials: Credentials,
    client: PhantomData<fn() -> C>,
}

impl<C: FromConnections + 'static> ClientBuilder<C> {
    /// An address without a scheme, `HOST:PORT`, is one of `http://`.
    pub(crate) fn new(url: impl Into<String>) -> Self {
        let (call_timeout, retry_for) = (Duration::from_secs(10), Duration::from_secs(30));
        let (hedge, credentials) = (None, Credentials::default());
        let builder =
            ClientBuilder { urls: Vec::new(), call_timeout, retry_for, hedge, credentials, client: PhantomData };
        builder.with_server(url.into())
    }

    /// How long one attempt of a call may take; a Dequeue may take its `wait_ms` longer. Default 10 s.
    #[must_use]
    pub fn call_timeout(mut self, call_timeout: Duration) -> Self {
        self.call_timeout = call_timeout;
        self
    }

    /// How long a call is repeated while the server is unavailable or overloaded; zero: never. Default 30 s.
    #[must_use]
    pub fn retry_for(mut self, retry_for: Duration) -> Self {
        self.retry_for = retry_for;
        self
    }

    /// Sends a call a second time when it has no answer after a time. With one server, hedges have a separate
    /// connection to it: another server may be behind it, or another thread of it. Default: never.
    #[must_use]
    pub fn hedge(mut self, hedge: Hedge) -> Self {
        self.hedge = Some(hedge);
        self
    }

    /// Trusts the CAs in this PEM file, instead of the system's, for `https://` addresses.
    #[must_use]
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.credentials.ca_file = Some(path.into());
        self
    }

    /// Shows the certificate in this PEM file, with the key in the other one, to servers at `https://` addresses.
    #[must_use]
    pub fn certificate_files(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.credentials.certificate = Some((certificate.into(), key.into()));
        self
    }

    /// Sends the token in this file with every call. The file is read again within a second of a change.
    #[must_use]
    pub fn token_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.credentials.token = Some(TokenSource::File(path.into()));
        self
    }

    /// Sends this token with every call.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.credentials.token = Some(TokenSource::Text(token.into()));
        self
    }

    pub(crate) fn with_server(mut self, url: String) -> Self {
        self.urls.push(if url.contains("://") { url } else { format!("http://{url}") });
        self
    }

    /// Checks the URLs, and connects to nothing.
    ///
    /// # Errors
    /// [`Error::Connect`] if a URL is invalid, or has a user or a password, or if a file of credentials cannot be used.
    pub fn check(&self) -> Result<()> {
        self.endpoints()?;
        self.credentials.token(&self.urls[0]).map(drop)
    }

    /// Connects now.
    ///
    /// # Errors
    /// [`Error::Connect`] if a URL is invalid, or no server accepts the connection.
    pub async fn connect(self) -> Result<C> {
        let endpoints = self.endpoints()?;
        let (mut connections, mut first_open, mut first_error) = (Vec::new(), None, None);
        for (number, (url, endpoint)) in endpoints.iter().enumerate() {
            match endpoint.connect_with_connector(connector(self.call_timeout)).await {
                Ok(connection) => {
                    first_open.get_or_insert(number);
                    connections.push(connection);
                }
                Err(error) => {
                    first_error.get_or_insert_with(|| connect_error(url, &error));
                    connections.push(self.lazy(endpoint));
                }
            }
        }
        match (first_open, first_error) {
            (None, Some(error)) => Err(error),
            (first_open, _) => self.client(&connections, first_open.unwrap_or(0), endpoints),
        }
    }

    /// Connects with the first call. Call it within a tokio runtime.
    ///
    /// # Errors
    /// [`Error::Connect`] if a URL is invalid.
    pub fn connect_lazy(self) -> Result<C> {
        let endpoints = self.endpoints()?;
        let connections: Vec<Channel> = endpoints.iter().map(|(_, endpoint)| self.lazy(endpoint)).collect();
        self.client(&connections, 0, endpoints)
    }

    fn client(self, connections: &[Channel], preferred: usize, mut endpoints: Vec<(String, Endpoint)>) -> Result<C> {
        let calls = Calls {
            call_timeout: self.call_timeout,
            retry_for: self.retry_for,
            servers: Arc::new(Servers::new(connections.len(), preferred)),
            hedging: self.hedge.map(|hedge| Arc::new(Hedging::new(hedge))),
            token: self.credentials.token(&self.urls[0])?.map(Arc::new),
        };
        let (_, first) = endpoints.swap_remove(0);
        Ok(C::from_connections(connections, calls, move || self.lazy(&first)))
    }

    fn lazy(&self, endpoint: &Endpoint) -> Channel {
        endpoint.connect_with_connector_lazy(connector(self.call_timeout))
    }

    /// The servers from a random one on, so that many clients do not call the same server first.
    fn endpoints(&self) -> Result<Vec<(String, Endpoint)>> {
        let mut urls = self.urls.clone();
        if self.hedge.is_some() && urls.len() == 1 {
            urls.extend_from_within(..);
        }
        let first = (uuid::Uuid::new_v4().as_u128() % urls.len() as u128) as usize;
        urls.rotate_left(first);
        urls.into_iter().map(|url| self.endpoint(&url).map(|endpoint| (url, endpoint))).collect()
    }

    fn endpoint(&self, url: &str) -> Result<Endpoint> {
        if let Some((_, host)) = url.rsplit_once('@') {
            // A password there would be of no use, and errors and logs would show it.
            let message = "the address has a user or a password, but servers identify clients by token".to_owned();
            return Err(Error::Connect { url: format!("***@{host}"), message });
        }
        let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|error| connect_error(url, &error))?;
        let endpoint = match endpoint.uri().scheme_str() {
            Some("http") => endpoint,
            Some("https") => {
                endpoint.tls_config(self.credentials.tls(url)?).map_err(|error| connect_error(url, &error))?
            }
            _ => {
                let message = "the address must begin with http:// or https://".to_owned();
                return Err(Error::Connect { url: url.to_owned(), message });
            }
        };
        let endpoint = endpoint
            .user_agent(concat!("tallystone-client/", env!("CARGO_PKG_VERSION")))
            .map_err(|error| connect_error(url, &error))?;
        Ok(endpoint
            .connect_timeout(self.call_timeout)
            // Detects a peer that vanished without closing the connection, even under an idle Work stream.
            .http2_keep_alive_interval(Duration::from_secs(10))
            .keep_alive_timeout(Duration::from_secs(10))
            .keep_alive_while_idle(true)
            .initial_stream_window_size(1024 * 1024)
            .initial_connection_window_size(8 * 1024 * 1024))
    }
}

fn connect_error(url: &str, error: &dyn std::error::Error) -> Error {
    // The transport's own message is only "transport error"; the innermost source has the cause.
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    Error::Connect { url: url.to_owned(), message: innermost.to_string() }
}
