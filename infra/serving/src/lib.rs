//! Everything that opens a port.
//!
//! What lives here: the [`Host`] of gRPC and HTTP services with its limits, health, reflection and orderly stop; the
//! metrics listener; the observation of calls ([`RpcMetrics`]); background tasks on dedicated threads; the HTTP error
//! body and extractors ([`http`]). the bounds on callers ([`Limits`]). TLS and identity belong here, once for all services.
//! What may not: anything that knows what a service does.

mod background;
mod bounds;
mod dedicated_thread;
mod error;
mod host;
pub mod http;
mod listen;
mod metrics;
mod rpc;
mod running;
mod transport;
mod unread;

pub use background::{BackgroundTask, BackgroundTasks};
pub use bounds::Limits;
pub use dedicated_thread::dedicated_thread;
pub use error::ServeError;
pub use host::Host;
pub use listen::Listen;
pub use metrics::{Buckets, listen_metrics};
pub use rpc::{ObservedCall, RpcMetrics};
pub use running::Running;
pub use unread::refused_in_full;
