//! The view counter over HTTP: `POST /v1/views`, `POST /v1/views:batch` and `GET /v1/videos/{videoId}/views`, each also
//! behind the name of a namespace (V1).
//!
//! What lives here: bodies, statuses, and the calls with their rights (`call`). What may not: anything that knows how views are counted.

mod call;
mod get;
mod post;
mod status;

use crate::metrics;
use crate::service::ViewService;
use axum::Router;
use axum::extract::State;
use axum::http::Method;
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, get, post};
use call::Api;
use std::sync::Arc;
use tallystone_link::StoreStatus;
use tallystone_serving::http::FaultBody;
use tallystone_serving::{Host, report_health};

/// The service of the log's status in the gRPC health protocol. The server itself stays ready without it: reads go on.
const LOG_HEALTH: &str = "tallystone.views.log";

/// A path, and what answers it.
type Route = (&'static str, fn() -> MethodRouter<Arc<Api>>);

const ROUTES: &[Route] = &[
    ("/v1/views", || post(post::one)),
    ("/v1/views:batch", || post(post::many)),
    ("/v1/videos/{video}/views", || get(get::counts)),
    ("/{namespace}/v1/views", || post(post::one_in)),
    ("/{namespace}/v1/views:batch", || post(post::many_in)),
    ("/{namespace}/v1/videos/{video}/views", || get(get::counts_in)),
];

/// Every path that is served, as axum writes them.
pub fn http_paths() -> impl Iterator<Item = &'static str> {
    ROUTES.iter().map(|(path, _)| *path)
}

/// Adds the paths to a host.
pub fn attach(host: Host, views: Arc<ViewService>) -> Host {
    host.spawn(report_health(host.health(), &[LOG_HEALTH], views.log_status(), |status| {
        let is_serving = *status == StoreStatus::Serving;
        metrics::log_available(is_serving);
        is_serving
    }));
    let api = Api::new(views);
    let direct = api.clone();
    let paths = ROUTES.iter().fold(Router::new(), |router, (path, answer)| router.route(path, answer()));
    let paths = paths.method_not_allowed_fallback(async || FaultBody::method_not_allowed()).with_state(api);
    host.http(paths).direct(Method::POST, "/v1/views", move |request| {
        let api = direct.clone();
        async move { post::one(State(api), request).await.into_response() }
    })
}
