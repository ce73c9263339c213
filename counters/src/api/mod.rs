//! The wire of the counters: gRPC, and the same calls as JSON over HTTP.
//!
//! What lives here: requests are parsed once, replies and refusals put on the wire; one file for each group of calls, over
//! them `grpc` and `http`. What may not: anything that knows how counters work (`service/`).

mod add;
mod clear;
mod crossings;
mod delete;
mod get;
mod grpc;
mod http;
mod list;
mod namespaces;
mod recount;
mod sealed;
mod status;
mod sums;
mod top;
mod unread;
mod wire;

pub use http::http_paths;

use crate::service::CounterService;
use axum::{Router, middleware};
use grpc::Api;
use std::sync::Arc;
use tallystone_link::StoreStatus;
use tallystone_proto::counter::v1::counter_admin_server::CounterAdminServer;
use tallystone_proto::counter::v1::counters_server::CountersServer;
use tallystone_serving::{Host, report_health};
use tonic::server::NamedService;
use tonic::service::Routes;

/// The largest request: a batch may hold a thousand items with all that they may carry.
const REQUEST_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Adds both gRPC services and the HTTP paths to a host.
pub fn attach(host: Host, counters: Arc<CounterService>) -> Host {
    if let Some(status) = counters.store_status() {
        let services = &["", CountersServer::<()>::NAME, CounterAdminServer::<()>::NAME];
        host.spawn(report_health(host.health(), services, status, |status| *status == StoreStatus::Serving));
    }
    let api = Api::new(counters);
    let counters = CountersServer::new(api.clone()).max_decoding_message_size(REQUEST_BYTES_MAX);
    let paths = Routes::from(Router::new()).add_service(counters).into_axum_router().merge(http::router(api.clone()));
    host.service(CounterAdminServer::new(api.clone()).max_decoding_message_size(REQUEST_BYTES_MAX))
        .http(paths.layer(middleware::from_fn_with_state(api, unread::refuse_unread)))
}
