//! Connecting to the servers of a client.

use crate::calls::{Calls, LIMIT_MAX};
use crate::connector::{connect, connect_lazily};
use crate::credentials::{Credentials, TokenSource};
use crate::error::{Error, Result};
use crate::hedge::{Hedge, Hedging};
use crate::servers::Servers;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint, Uri};

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
    options: Options,
    client: PhantomData<fn() -> C>,
}

/// What a builder holds. Whatever client it makes, it connects by the same code.
#[derive(Clone, Debug)]
struct Options {
    urls: Vec<String>,
    call_timeout: Duration,
    retry_for: Duration,
    hedge: Option<Hedge>,
    credentials: Credentials,
}

/// The connections of a client, one for each server.
struct Connections {
    endpoints: Vec<(String, Endpoint)>,
    channels: Vec<Channel>,
    /// The number of the server that calls go to first.
    preferred: usize,
}

impl<C: FromConnections + 'static> ClientBuilder<C> {
    /// An address without a scheme, `HOST:PORT`, is one of `http://`.
    pub(crate) fn new(url: impl Into<String>) -> Self {
        let (call_timeout, retry_for) = (Duration::from_secs(10), Duration::from_secs(30));
        let (hedge, credentials) = (None, Credentials::default());
        let options = Options { urls: Vec::new(), call_timeout, retry_for, hedge, credentials };
        ClientBuilder { options, client: PhantomData }.with_server(url.into())
    }

    /// How long one attempt of a call may take; a Dequeue may take its `wait_ms` longer. Default 10 s.
    #[must_use]
    pub fn call_timeout(mut self, call_timeout: Duration) -> Self {
        self.options.call_timeout = call_timeout.min(LIMIT_MAX);
        self
    }

    /// How long a call is repeated while the server is unavailable or overloaded; zero: never. Default 30 s.
    #[must_use]
    pub fn retry_for(mut self, retry_for: Duration) -> Self {
        self.options.retry_for = retry_for;
        self
    }

    /// Sends a call a second time when it has no answer after a time. With one server, hedges have a separate
    /// connection to it: another server may be behind it, or another thread of it. Default: never.
    #[must_use]
    pub fn hedge(mut self, hedge: Hedge) -> Self {
        self.options.hedge = Some(hedge);
        self
    }

    /// Trusts the CAs in this PEM file, instead of the system's, for `https://` addresses.
    #[must_use]
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.credentials.ca_file = Some(path.into());
        self
    }

    /// Shows the certificate in this PEM file, with the key in the other one, to servers at `https://` addresses.
    #[must_use]
    pub fn certificate_files(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.options.credentials.certificate = Some((certificate.into(), key.into()));
        self
    }

    /// Sends the token in this file with every call. The file is read again within a second of a change.
    #[must_use]
    pub fn token_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.credentials.token = Some(TokenSource::File(path.into()));
        self
    }

    /// Sends this token with every call.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.options.credentials.token = Some(TokenSource::Text(token.into()));
        self
    }

    pub(crate) fn with_server(mut self, url: String) -> Self {
        self.options.urls.push(url);
        self
    }

    /// Checks the URLs, and connects to nothing.
    ///
    /// # Errors
    /// [`Error::Connect`] if a URL is invalid, or has a user or a password, or if a file of credentials cannot be used.
    pub fn check(&self) -> Result<()> {
        self.options.endpoints()?;
        self.options.credentials.token(&self.options.urls[0]).map(drop)
    }

    /// Connects now.
    ///
    /// # Errors
    /// [`Error::Connect`] if a URL is invalid, or no server accepts the connection.
    pub async fn connect(self) -> Result<C> {
        let connections = self.options.connect().await?;
        self.client(connections)
    }

    /// Connects with the first call. Call it within a tokio runtime.
    ///
    /// # Errors
    /// [`Error::Connect`] if a URL is invalid.
    pub fn connect_lazy(self) -> Result<C> {
        let connections = self.options.connect_lazily()?;
        self.client(connections)
    }

    fn client(self, connections: Connections) -> Result<C> {
        let Connections { mut endpoints, channels, preferred } = connections;
        let calls = self.options.calls(channels.len(), preferred)?;
        let (_, first) = endpoints.swap_remove(0);
        let call_timeout = self.options.call_timeout;
        Ok(C::from_connections(&channels, calls, move || connect_lazily(&first, call_timeout)))
    }
}

impl Options {
    async fn connect(&self) -> Result<Connections> {
        let endpoints = self.endpoints()?;
        let (mut channels, mut first_open, mut first_error) = (Vec::new(), None, None);
        for (number, (url, endpoint)) in endpoints.iter().enumerate() {
            match connect(endpoint.clone(), self.call_timeout).await {
                Ok(channel) => {
                    first_open.get_or_insert(number);
                    channels.push(channel);
                }
                Err(error) => {
                    first_error.get_or_insert_with(|| connect_error(url, &error));
                    channels.push(connect_lazily(endpoint, self.call_timeout));
                }
            }
        }
        match (first_open, first_error) {
            (None, Some(error)) => Err(error),
            (first_open, _) => Ok(Connections { endpoints, channels, preferred: first_open.unwrap_or(0) }),
        }
    }

    fn connect_lazily(&self) -> Result<Connections> {
        let endpoints = self.endpoints()?;
        let channels = endpoints.iter().map(|(_, endpoint)| connect_lazily(endpoint, self.call_timeout)).collect();
        Ok(Connections { endpoints, channels, preferred: 0 })
    }

    fn calls(&self, servers: usize, preferred: usize) -> Result<Calls> {
        Ok(Calls {
            call_timeout: self.call_timeout,
            retry_for: self.retry_for,
            servers: Arc::new(Servers::new(servers, preferred)),
            hedging: self.hedge.map(|hedge| Arc::new(Hedging::new(hedge))),
            token: self.credentials.token(&self.urls[0])?.map(Arc::new),
        })
    }

    /// The servers from a random one on, so that many clients do not call the same server first.
    fn endpoints(&self) -> Result<Vec<(String, Endpoint)>> {
        let mut urls = self.urls.clone();
        if self.hedge.is_some() && urls.len() == 1 {
            urls.extend_from_within(..);
        }
        let first = (uuid::Uuid::new_v4().as_u128() % urls.len() as u128) as usize;
        urls.rotate_left(first);
        let endpoint = |url| {
            let url = self.with_scheme(url)?;
            self.endpoint(&url).map(|endpoint| (url, endpoint))
        };
        urls.into_iter().map(endpoint).collect()
    }

    /// An address without a scheme is one of plain text. With a token it must say so itself, unless it is this machine's: the token would
    /// go through the network before the client learns that the server has TLS.
    fn with_scheme(&self, url: String) -> Result<String> {
        if url.contains("://") {
            return Ok(url);
        }
        let plain = format!("http://{url}");
        if self.credentials.has_token() && !is_loopback(&plain) {
            let message =
                format!("with a token the address needs a scheme: https://{url}, or http://{url} without encryption");
            return Err(Error::Connect { url, message });
        }
        Ok(plain)
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

/// Whether an address is one of this machine.
fn is_loopback(url: &str) -> bool {
    let uri: Option<Uri> = url.parse().ok();
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

fn connect_error(url: &str, error: &dyn std::error::Error) -> Error {
    // The transport's own message is only "transport error"; the innermost source has the cause.
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    Error::Connect { url: url.to_owned(), message: innermost.to_string() }
}

#[cfg(test)]
mod tests {
    use crate::{Client, Error};

    #[tokio::test]
    async fn s2_a_token_goes_to_no_other_machine_in_plain_text_because_a_scheme_was_forgotten() {
        let connected = |url: &str, has_token: bool| {
            let builder = Client::builder(url);
            let builder = if has_token { builder.token("ts_secret") } else { builder };
            builder.connect_lazy()
        };
        for url in ["localhost:7600", "127.0.0.1:7600", "127.1.2.3", "[::1]:7600", "http://db:7600", "https://db:7600"]
        {
            assert!(connected(url, true).is_ok(), "{url}");
        }
        for url in ["db:7600", "db", "10.0.0.1:7600", "[fe80::1]:7600", "localhost.example.com:7600"] {
            assert!(connected(url, false).is_ok(), "{url}");
            let Err(Error::Connect { message, .. }) = connected(url, true) else { panic!("{url} is accepted") };
            assert!(message.contains(&format!("https://{url}")) && !message.contains("ts_secret"), "{message}");
        }
    }
}
