//! Why a port is not served.

use std::net::SocketAddr;

/// Why a host did not start, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The port cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The listener that the host was given is no bound port.
    #[error("cannot serve on this listener: {0}")]
    Listener(std::io::Error),
    /// `/metrics` cannot be served.
    #[error("cannot serve metrics on {address}: {why}")]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// Why.
        why: String,
    },
    /// A background task has failed or panicked.
    #[error("a background task has failed: {0}")]
    BackgroundTask(String),
    /// The gRPC transport has failed.
    #[error("the gRPC server has failed: {0}")]
    Grpc(#[from] tonic::transport::Error),
}
