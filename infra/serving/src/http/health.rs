//! Health for probes that speak HTTP only: `GET /health` says what the gRPC health service answers, `GET /livez` whether
//! the process is to be restarted, `GET /readyz` whether it is to get calls.

use crate::health::ProcessHealth;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::server::HealthService;

#[derive(Deserialize)]
struct Target {
    /// The service; the whole host without it.
    #[serde(default)]
    service: String,
}

#[derive(Serialize)]
struct HealthBody {
    /// As gRPC names it.
    status: &'static str,
}

const HEALTH: &str = "/health";
/// 200 as long as the process answers at all. It does not depend on the store: a restart would not repair that.
const LIVE: &str = "/livez";
/// 200 while the process can use its store, which has its data, and does not stop; else 503.
const READY: &str = "/readyz";

/// Whether a request to this path is a health probe over HTTP.
pub(crate) fn is_http_probe(path: &str) -> bool {
    [HEALTH, LIVE, READY].contains(&path)
}

/// Whether a request to this path is a health probe, over HTTP or gRPC.
pub(crate) fn is_probe(path: &str) -> bool {
    is_http_probe(path) || path.starts_with("/grpc.health.v1.Health/")
}

/// The paths of a port. [`HEALTH`]: 200 for SERVING, 404 for a service that is not here, and 503 for every other status.
pub(crate) fn health_paths(of: ProcessHealth) -> Router {
    let live = get(async || answer(ServingStatus::Serving));
    Router::new().route(HEALTH, get(health)).route(READY, get(ready)).route(LIVE, live).with_state(of)
}

async fn health(State(of): State<ProcessHealth>, Query(target): Query<Target>) -> Response {
    answer(status(of, target.service).await)
}

async fn ready(State(of): State<ProcessHealth>) -> Response {
    answer(match of.stopping.is_cancelled() {
        true => ServingStatus::NotServing,
        false => status(of, String::new()).await,
    })
}

async fn status(of: ProcessHealth, service: String) -> ServingStatus {
    let request = tonic::Request::new(HealthCheckRequest { service });
    match HealthService::from_health_reporter(of.reporter).check(request).await {
        Ok(answer) => answer.into_inner().status(),
        Err(_) => ServingStatus::ServiceUnknown,
    }
}

fn answer(status: ServingStatus) -> Response {
    let code = match status {
        ServingStatus::Serving => StatusCode::OK,
        ServingStatus::ServiceUnknown => StatusCode::NOT_FOUND,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (code, Json(HealthBody { status: status.as_str_name() })).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::http::Request;
    use tokio_util::sync::CancellationToken;
    use tower::ServiceExt as _;

    #[tokio::test]
    async fn o3_a_process_is_live_without_its_store_and_ready_only_with_it_until_it_stops() {
        let stopping = CancellationToken::new();
        let health = ProcessHealth::new(stopping.clone());
        let paths = health_paths(health.clone());
        let codes = async || {
            let get = async |path: &str| {
                let request = Request::get(path).body(Body::empty()).unwrap();
                paths.clone().oneshot(request).await.unwrap().status().as_u16()
            };
            [get(LIVE).await, get(READY).await, get(HEALTH).await, get("/live").await]
        };
        assert_eq!(codes().await, [200, 200, 200, 404]);
        health.report(false).await;
        assert_eq!(codes().await, [200, 503, 503, 404]);
        health.report(true).await;
        stopping.cancel();
        assert_eq!(codes().await, [200, 503, 200, 404]);
    }
}
