//! What HTTP services share: the error body, the extractors that answer with it, and the path of the host's health.
//! Calls themselves live with their service.

mod extract;
mod fault;
mod health;

pub use extract::{PathParams, RawBody};
pub use fault::{Fault, FaultBody, Faults, unknown_path};
pub(crate) use health::health_path;
