//! How a client connects: over TCP, with small writes sent together.
//!
//! What connects is compiled here once. An `async fn`, or a function of a generic client, would compile HTTP/2 again in each crate
//! that calls it.

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use std::pin::Pin;
use std::time::Duration;
use tallystone_proto::Corked;
use tokio::net::TcpStream;
use tonic::codegen::http::Uri;
use tonic::transport::{self, Channel, Endpoint};
use tower::{Service, ServiceExt};

/// Connects now, as [`Client`](crate::Client) does, for a generated client. `connect_timeout`: how long TCP may take.
///
/// # Errors
/// The transport's, if no connection could be opened.
pub fn connect(
    endpoint: Endpoint,
    connect_timeout: Duration,
) -> Pin<Box<dyn Future<Output = Result<Channel, transport::Error>> + Send>> {
    Box::pin(async move { endpoint.connect_with_connector(connector(connect_timeout)).await })
}

/// A connection that opens with its first call.
pub(crate) fn connect_lazily(endpoint: &Endpoint, connect_timeout: Duration) -> Channel {
    endpoint.connect_with_connector_lazy(connector(connect_timeout))
}

fn connector(
    connect_timeout: Duration,
) -> impl Service<Uri, Response = TokioIo<Corked<TcpStream>>, Error = impl std::error::Error, Future: Send> + Clone {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(connect_timeout));
    tcp.map_response(|stream: TokioIo<TcpStream>| TokioIo::new(Corked::new(stream.into_inner())))
}
