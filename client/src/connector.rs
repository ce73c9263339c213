//! The TCP connector, which sends small writes together.

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tallystone_proto::Corked;
use tokio::net::TcpStream;
use tonic::codegen::http::Uri;
use tower::{Service, ServiceExt};

/// The connector of [`Client`](crate::Client). Give it to
/// [`Endpoint::connect_with_connector`](tonic::transport::Endpoint::connect_with_connector), and a generated client
/// connects in the same way.
pub fn connector(
    connect_timeout: Duration,
) -> impl Service<Uri, Response = TokioIo<Corked<TcpStream>>, Error = impl std::error::Error, Future: Send> + Clone {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(connect_timeout));
    tcp.map_response(|stream: TokioIo<TcpStream>| TokioIo::new(Corked::new(stream.into_inner())))
}
