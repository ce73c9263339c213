//! TLS on every port (S2).
//!
//! What lives here: `config`, the section `[tls]`; `certificates`, which reads the files; `acceptor`, which reads them again when they
//! change; `stream`, a connection with or without TLS; `names`, what a client's certificate says. What may not: whose
//! certificate it is (`access`).

mod acceptor;
mod certificates;
mod config;
mod names;
mod stream;

pub(crate) use acceptor::Tls;
pub use config::{ClientCertificates, TlsConfig};
pub(crate) use names::ClientCertificate;
pub(crate) use stream::{Handshake, Wire};
