//! What HTTP services share: the error body and the extractors that answer with it. Calls themselves live with their
//! service.

mod extract;
mod fault;

pub use extract::{PathParams, RawBody};
pub use fault::{Fault, FaultBody, Faults, unknown_path};
