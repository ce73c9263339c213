//! HTTP/2 and HTTP/1 on one listener, within limits: what every port of a process is made of.

use crate::access::IdentifyLayer;
use crate::bounds::{BoundLayer, Bounds, CONNECTION_WINDOW_BYTES, Methods, accept};
use crate::ports::Ports;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use futures::TryStreamExt;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tallystone_proto::Corked;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::codegen::http::Request as HttpRequest;
use tonic::transport::Server;
use tower::util::ServiceExt;
use tower::{Layer, Service};

/// How often an idle connection is probed, and how long it may take to respond.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// Calls that a client may cancel before the server has accepted them; beyond, the server closes the connection. The
/// bound is high because workers that stop waiting are no attack.
const CANCELLED_PER_CONNECTION: usize = 1_000;
/// The window of each call: HTTP/2 holds up to as much of a call whose requests are not read, for example of a Work
/// stream whose answers are not read. A larger request takes another round trip for each window.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;

/// Serves until it is stopped: then no connection is accepted any more, and the open ones end.
pub(crate) async fn transport<S>(
    listener: TcpListener,
    service: S,
    ports: Ports,
    stopping: CancellationToken,
) -> Result<(), tonic::transport::Error>
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    let bound = BoundLayer { methods: Arc::new(Methods::new()) };
    let Ports { limits, tls, identities, audit } = ports;
    let identify = IdentifyLayer { identities, audit };
    // Around all paths: as layers of a router they would be copied and boxed with each call.
    let service =
        (bound, identify).layer(service).map_request(|call: HttpRequest<tonic::body::Body>| call.map(Body::new));
    let bounds = Bounds::new(limits);
    let server = Server::builder()
        .accept_http1(true)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .max_concurrent_streams(limits.connection_streams_max)
        .http2_max_pending_accept_reset_streams(Some(CANCELLED_PER_CONNECTION))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .serve_with_incoming_shutdown(
            service,
            accept(listener, bounds.clone(), tls).map_ok(Corked::new),
            stopping.cancelled_owned(),
        );
    tokio::select! {
        served = server => served,
        never = bounds.watch() => match never {},
    }
}
