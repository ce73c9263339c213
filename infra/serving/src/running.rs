//! A host that runs in the background of this process.

use crate::{Host, ServeError};
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A host in the background, on the runtime that it was started on. Dropped, it stops.
pub struct Running {
    address: SocketAddr,
    stopping: CancellationToken,
    /// `None` once its end was reported.
    served: Option<JoinHandle<Result<(), ServeError>>>,
    _stop_when_dropped: DropGuard,
}

impl Running {
    /// Starts a host on a bound listener.
    pub fn start(host: Host, listener: TcpListener) -> Result<Running, ServeError> {
        let address = listener.local_addr().map_err(ServeError::Listener)?;
        let stopping = CancellationToken::new();
        let served = Some(tokio::spawn(host.serve(listener, stopping.clone().cancelled_owned())));
        Ok(Running { address, served, _stop_when_dropped: stopping.clone().drop_guard(), stopping })
    }

    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same, as clients take it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits until the host ends, and returns how; later calls return `Ok`. Before [`Running::stop`], any end is a failure.
    pub async fn ended(&mut self) -> Result<(), ServeError> {
        let Some(served) = &mut self.served else { return Ok(()) };
        let ended = served.await;
        self.served = None;
        ended.unwrap_or_else(|panic| Err(ServeError::BackgroundTask(panic.to_string())))
    }

    /// Stops it in order, as [`Host::serve`] describes, and waits until it has ended.
    pub async fn stop(mut self) -> Result<(), ServeError> {
        self.stopping.cancel();
        self.ended().await
    }
}
