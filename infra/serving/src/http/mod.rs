//! What HTTP services share: the error body, the extractors that answer with it, 64-bit integers, lists and objects in JSON, the path of the
//! host's health, and the guard of a port against browsers: content type, `Host`, `Origin`, headers of the answers. Calls
//! themselves live with their service.

mod extract;
mod fault;
mod guard;
mod headers;
mod health;
mod hosts;
mod int64;
mod list;
mod object;
mod origin;

pub use extract::{JsonBody, PathParams};
pub(crate) use fault::is_grpc;
pub use fault::{Fault, FaultBody, Faults, unknown_path};
pub(crate) use guard::GuardLayer;
pub(crate) use health::{health_paths, is_http_probe, is_probe};
pub(crate) use hosts::HostNames;
pub use hosts::check_host_names;
pub use int64::Int64;
pub use list::short_list;
pub use object::Object;
