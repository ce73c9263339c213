//! The same calls as JSON over HTTP: each request body becomes the message of the RPC, and each reply is written from the
//! RPC's reply, so that everything is checked once and alike.

mod calls;
mod crossings;
mod int64;
mod item;
mod messages;
mod openapi;
mod recounts;
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
use axum::routing::{get, post, put};
use tallystone_serving::http::FaultBody;

/// The paths, and the page that describes them.
pub(super) fn router(api: Api) -> Router {
    Router::new()
        .route("/v1/add_count", post(add_count))
        .route("/v1/add_and_get_count", post(add_and_get_count))
        .route("/v1/add_counts", post(add_counts))
        .route("/v1/add_and_get_counts", post(add_and_get_counts))
        .route("/v1/get_count", post(get_count))
        .route("/v1/get_counts", post(get_counts))
        .route("/v1/clear_count", post(clear_count))
        .route("/v1/clear_counts", post(clear_counts))
        .route("/v1/delete_counter", post(delete_counter))
        .route("/v1/list_counters", post(list_counters))
        .route("/v1/list_top_counters", post(list_top_counters))
        .route("/v1/list_events", post(list_events))
        .route("/v1/get_sums", post(get_sums))
        .route("/v1/audit_counter", post(audit_counter))
        .route("/v1/recount_counter", post(recount_counter))
        .route("/v1/list_recounts", post(list_recounts))
        .route("/v1/namespaces", get(list_namespaces))
        .route("/v1/namespaces/{namespace}", get(get_namespace).put(put_namespace).delete(delete_namespace))
        .route("/v1/namespaces/{namespace}/persistence_configuration", put(put_persistence_configuration))
        .route("/v1/namespaces/{namespace}/crossings", get(list_crossings))
        .route("/v1/namespaces/{namespace}/counters/{*counter}", get(read_count))
        .route_layer(middleware::from_fn(int64::answer_text))
        .route("/openapi.json", get(openapi::document))
        .route("/", get(async || Html(include_str!("page.html"))))
        // Separate files, because browsers run nothing inline (S7).
        .route("/page.css", get(async || of_page("text/css; charset=utf-8", include_str!("page.css"))))
        .route("/page.js", get(async || of_page("text/javascript; charset=utf-8", include_str!("page.js"))))
        .method_not_allowed_fallback(async || FaultBody::method_not_allowed())
        .with_state(api)
}

fn of_page(content_type: &'static str, text: &'static str) -> impl IntoResponse {
    ([(CONTENT_TYPE, content_type)], text)
}
