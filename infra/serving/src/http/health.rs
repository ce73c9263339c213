//! `GET /health`: what the gRPC health service answers, for probes that speak HTTP only.

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::server::{HealthReporter, HealthService};

#[derive(Deserialize)]
struct Target {
    /// The service; the whole host without it.
    #[serde(default)]
    service: String,
}

#[derive(Serialize)]
struct Answer {
    /// As gRPC names it.
    status: &'static str,
}

/// Where it is served.
pub(crate) const HEALTH: &str = "/health";

/// Whether a request to this path is a health probe, over HTTP or gRPC.
pub(crate) fn is_probe(path: &str) -> bool {
    path == HEALTH || path.starts_with("/grpc.health.v1.Health/")
}

/// The path, with 200 for SERVING, 404 for a service that is not here, and 503 for every other status.
pub(crate) fn health_path(reporter: HealthReporter) -> Router {
    Router::new().route(HEALTH, get(health)).with_state(reporter)
}

async fn health(State(reporter): State<HealthReporter>, Query(target): Query<Target>) -> Response {
    let request = tonic::Request::new(HealthCheckRequest { service: target.service });
    let status = match HealthService::from_health_reporter(reporter).check(request).await {
        Ok(answer) => answer.into_inner().status(),
        Err(_) => ServingStatus::ServiceUnknown,
    };
    let code = match status {
        ServingStatus::Serving => StatusCode::OK,
        ServingStatus::ServiceUnknown => StatusCode::NOT_FOUND,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (code, Json(Answer { status: status.as_str_name() })).into_response()
}
