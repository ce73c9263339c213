//! The same calls as JSON over HTTP: each request body becomes the message of the RPC, and each reply is written from the
//! RPC's reply, so that everything is checked once and alike.

mod answers;
mod calls;
mod crossings;
mod int64;
mod item;
mod openapi;
mod recounts;
mod requests;
mod top;

use calls::*;
use crossings::*;
use recounts::*;
use top::*;

use super::grpc::Api;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::middleware;
use axum::response::{Html, IntoResponse};
use axum::routing::{MethodRouter, get, post, put};
use tallystone_serving::http::FaultBody;

/// A path, and what answers it.
type Route = (&'static str, fn() -> MethodRouter<Api>);

const CALLS: &[Route] = &[
    ("/v1/add_count", || post(add_count)),
    ("/v1/add_and_get_count", || post(add_and_get_count)),
    ("/v1/add_counts", || post(add_counts)),
    ("/v1/add_and_get_counts", || post(add_and_get_counts)),
    ("/v1/get_count", || post(get_count)),
    ("/v1/get_counts", || post(get_counts)),
    ("/v1/clear_count", || post(clear_count)),
    ("/v1/clear_counts", || post(clear_counts)),
    ("/v1/delete_counter", || post(delete_counter)),
    ("/v1/list_counters", || post(list_counters)),
    ("/v1/list_top_counters", || post(list_top_counters)),
    ("/v1/list_events", || post(list_events)),
    ("/v1/get_sums", || post(get_sums)),
    ("/v1/audit_counter", || post(audit_counter)),
    ("/v1/recount_counter", || post(recount_counter)),
    ("/v1/list_recounts", || post(list_recounts)),
    ("/v1/namespaces", || get(list_namespaces)),
    ("/v1/namespaces/{namespace}", || get(get_namespace).put(put_namespace).delete(delete_namespace)),
    ("/v1/namespaces/{namespace}/persistence_configuration", || put(put_persistence_configuration)),
    ("/v1/namespaces/{namespace}/crossings", || get(list_crossings)),
    ("/v1/namespaces/{namespace}/counters/{*counter}", || get(read_count)),
];

const PAGE: &[Route] = &[
    ("/openapi.json", || get(openapi::document)),
    ("/", || get(async || Html(include_str!("page.html")))),
    // Separate files, because browsers run nothing inline (S7).
    ("/page.css", || get(async || of_page("text/css; charset=utf-8", include_str!("page.css")))),
    ("/page.js", || get(async || of_page("text/javascript; charset=utf-8", include_str!("page.js")))),
];

/// Every path that is served, as axum writes them.
pub fn http_paths() -> impl Iterator<Item = &'static str> {
    [CALLS, PAGE].into_iter().flatten().map(|(path, _)| *path)
}

/// The paths, and the page that describes them.
pub(super) fn router(api: Api) -> Router {
    let of =
        |routes: &[Route]| routes.iter().fold(Router::new(), |router, (path, answer)| router.route(path, answer()));
    of(CALLS)
        .route_layer(middleware::from_fn(int64::answer_text))
        .merge(of(PAGE))
        .method_not_allowed_fallback(async || FaultBody::method_not_allowed())
        .with_state(api)
}

fn of_page(content_type: &'static str, text: &'static str) -> impl IntoResponse {
    ([(CONTENT_TYPE, content_type)], text)
}
