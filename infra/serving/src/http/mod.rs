//! What HTTP services share: the error body, the extractors that answer with it, the path of the host's health, and the
//! refusal of calls that come from pages of other origins. Calls themselves live with their service.

mod extract;
mod fault;
mod health;
mod origin;

pub use extract::{JsonBody, PathParams};
pub use fault::{Fault, FaultBody, Faults, unknown_path};
pub(crate) use health::health_path;
pub(crate) use origin::refuse_other_origins;
