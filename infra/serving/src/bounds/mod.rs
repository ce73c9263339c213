//! What callers may take of a host: connections, time and memory (S1).
//!
//! What lives here: the limits and their section of the configuration; the accept loop, with the admission of connections;
//! the wrapper of each connection; the wrapper of each request's body; the places of
//! streams that stay open. What may not: what a request says. Each service
//! bounds that itself.

mod accept;
mod admission;
mod body;
mod files;
mod limits;
mod open_streams;
mod refusal;
mod requests;

pub(crate) use accept::accept;
pub(crate) use admission::{Bounds, Caller};
pub use limits::Limits;
pub(crate) use open_streams::bound_streams;
pub(crate) use requests::{BoundRequest, client_streams};
