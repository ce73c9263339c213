//! Everything that opens a port.
//!
//! What lives here: the [`Host`] of gRPC and HTTP services with its limits, health, reflection and orderly stop; the
//! metrics listener; the observation of calls ([`RpcMetrics`]) and their spans; background tasks on dedicated threads; the HTTP error
//! body and extractors ([`http`]); what all ports of a process share ([`Ports`]): the bounds on callers ([`Limits`]), TLS
//! ([`TlsConfig`]), and who may do what ([`Access`]); the bound on what waits for a store ([`WaitingRoom`]).
//! What may not: anything that knows what a service does.

mod access;
mod background;
mod bounds;
mod collectors;
mod dedicated_thread;
mod direct;
mod error;
mod health;
mod host;
pub mod http;
mod listen;
mod metrics;
mod ports;
mod rpc;
mod running;
mod spans;
mod tls;
mod transport;
mod unread;
mod waiting_room;
mod watched;

pub use access::{
    Access, AuditConfig, AuditedCall, AuthConfig, Book, FileError, Guarded, JwtConfig, METHODS, OnAuditFailure,
    Patterns, PrincipalSummary, Resource, Right, Rule, Rules, Token, Verdict,
};
pub use background::{BackgroundTask, BackgroundTasks};
pub use bounds::Limits;
pub use collectors::Collectors;
pub use dedicated_thread::dedicated_thread;
pub use error::ServeError;
pub use health::{ProcessHealth, report_health};
pub use host::Host;
pub use listen::Listen;
pub use metrics::{Buckets, listen_metrics};
pub use ports::Ports;
pub use rpc::{ObservedCall, RpcMetrics, SECONDS};
pub use running::Running;
pub use spans::{start_spans, trace_context, trace_items};
pub use tls::{ClientCertificates, TlsConfig};
pub use unread::refused_in_full;
pub use waiting_room::{Overloaded, RoomPlace, WaitingBounds, WaitingRoom};
