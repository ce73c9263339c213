//! Serving gRPC services that need no queue: with metrics, health and reflection, as the queue's own are.

use crate::metrics;
use crate::serve::{
    CONNECTION_WINDOW_BYTES, KEEPALIVE, STOP_WAIT, STREAM_WINDOW_BYTES, STREAMS_PER_CONNECTION, ServeError,
    WELL_FORMED, described,
};
use futures::TryStreamExt;
use futures::future::BoxFuture;
use std::net::SocketAddr;
use tallystone_proto::Corked;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;

/// Serves `/metrics`, and makes its recorder the process's: once per process. The future does not end by itself.
pub fn serve_metrics(address: SocketAddr) -> Result<impl Future<Output = ()> + Send, ServeError> {
    metrics::listen(address).map_err(|why| ServeError::Metrics { address, why })
}

/// Serves these services until the token is cancelled; over HTTP/1 too, for what of them is no gRPC. (The indexer's
/// `History`, and the counters.)
pub fn serve_only(
    listener: TcpListener,
    metrics_listen: Option<SocketAddr>,
    routes: Routes,
    stopping: CancellationToken,
) -> BoxFuture<'static, Result<(), ServeError>> {
    Box::pin(serving(listener, metrics_listen, routes, stopping))
}

async fn serving(
    listener: TcpListener,
    metrics_listen: Option<SocketAddr>,
    routes: Routes,
    stopping: CancellationToken,
) -> Result<(), ServeError> {
    if let Some(address) = metrics_listen {
        let listener = serve_metrics(address)?;
        tokio::spawn(stopping.clone().run_until_cancelled_owned(listener));
    }
    // Serving as a whole from now on: what it answers from says itself when it is away.
    let (_reporter, health) = tonic_health::server::health_reporter();
    let reflection = described().build_v1().expect(WELL_FORMED);
    let server = tonic::transport::Server::builder()
        .accept_http1(true)
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .add_routes(routes)
        .add_service(health)
        .add_service(reflection)
        .serve_with_incoming_shutdown(
            TcpIncoming::from(listener).with_nodelay(Some(true)).map_ok(Corked::new),
            stopping.clone().cancelled_owned(),
        );
    let mut server = std::pin::pin!(server);
    tokio::select! {
        served = &mut server => served?,
        () = stopping.cancelled() => {
            // A client that does not let go of its connection does not keep the server.
            if let Ok(served) = tokio::time::timeout(STOP_WAIT, server).await {
                served?;
            }
        }
    }
    Ok(())
}
