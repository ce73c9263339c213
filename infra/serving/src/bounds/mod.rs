//! What callers may take of a host: connections, time and memory (S1).
//!
//! What lives here: the limits and their section of the configuration; the accept loop, with the admission of connections;
//! the wrapper of each connection; the wrappers of each request's body and of each answer's; the places of
//! streams that stay open, and how many of them one address has; how many elements a message may have (`elements`, by the
//! descriptors of `methods`). What may not: what a request says otherwise. Each service bounds that itself.

mod accept;
mod admission;
mod answer;
mod arrived;
mod body;
mod by_site;
mod elements;
mod files;
mod frames;
mod head;
mod limits;
mod methods;
mod metrics;
mod open_connections;
mod open_streams;
mod refusal;
mod requests;
mod unread;

pub(crate) use accept::accept;
pub(crate) use admission::{Bounds, Caller};
pub(crate) use arrived::CONNECTION_WINDOW_BYTES;
pub use limits::Limits;
pub(crate) use methods::Methods;
pub(crate) use open_streams::bound_streams;
pub(crate) use requests::BoundLayer;
