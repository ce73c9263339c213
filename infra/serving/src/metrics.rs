//! The Prometheus recorder of the process, and the port that shows it.

use crate::ServeError;
use crate::access::{Access, Right};
use crate::collectors::Collectors;
use crate::health::ProcessHealth;
use crate::http::{FaultBody, GuardLayer, HostNames, health_paths, unknown_path};
use crate::ports::Ports;
use crate::rpc::{RPC_SECONDS, SECONDS};
use crate::transport::transport;
use crate::unread;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse as _;
use axum::routing::get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// How often the values of histograms that no page has shown are summed up.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);
const METRICS: &str = "/metrics";
/// The text format of Prometheus.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The upper bounds of the buckets of one histogram. Histograms without them are exported as summaries.
#[derive(Clone, Copy, Debug)]
pub struct Buckets {
    /// The histogram.
    pub metric: &'static str,
    /// Rising, in the metric's unit.
    pub bounds: &'static [f64],
}

/// Installs the process's metrics recorder and binds `/metrics`: once per process, before any metric handle is made.
/// The returned future serves the port; it ends only on failure. The caller needs the right [`Right::Metrics`]. The port also
/// answers the health of the process, to every caller.
///
/// # Errors
/// [`ServeError::Metrics`]: the address cannot be bound, or the process has a recorder already.
pub fn listen_metrics(
    address: SocketAddr,
    buckets: &[Buckets],
    ports: &Ports,
    collectors: &Collectors,
    health: &ProcessHealth,
) -> Result<impl Future<Output = ()> + Send + use<>, ServeError> {
    let failed = |why: String| ServeError::Metrics { address, why };
    let listener = bind(address).map_err(|error| failed(error.to_string()))?;
    let mut builder = PrometheusBuilder::new();
    for Buckets { metric, bounds } in [&Buckets { metric: RPC_SECONDS, bounds: SECONDS }].into_iter().chain(buckets) {
        builder = builder
            .set_buckets_for_metric(Matcher::Full((*metric).to_owned()), bounds)
            .map_err(|error| failed(error.to_string()))?;
    }
    let recorder = builder.build_recorder();
    let metrics = recorder.handle();
    let router = pages(metrics.clone(), collectors.clone(), health.clone());
    // A page of a foreign site can let its name resolve to loopback. Other addresses are for Prometheus, which may use any name.
    let router =
        if address.ip().to_canonical().is_loopback() { router.layer(GuardLayer(HostNames::default())) } else { router };
    let ports = ports.clone();
    ::metrics::set_global_recorder(recorder).map_err(|error| failed(error.to_string()))?;
    begin_metrics(&ports);
    Ok(async move {
        let served = transport(listener, router, ports, CancellationToken::new());
        tokio::select! {
            served = served => tracing::error!(%address, ?served, "the metrics listener has ended"),
            never = keep_up(metrics) => match never {},
        }
    })
}

/// The files are open before the recorder is installed.
fn begin_metrics(ports: &Ports) {
    unread::begin_metrics();
    ports.audit.iter().for_each(|audit| audit.begin_metrics());
    ports.tls.iter().for_each(|tls| tls.begin_metrics());
    ports.identities.iter().for_each(|identities| identities.begin_metrics());
}

fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

fn pages(metrics: PrometheusHandle, collectors: Collectors, health: ProcessHealth) -> Router {
    let page = async move |access: Access| match access.require(METRICS, Right::Metrics, METRICS) {
        Ok(()) => {
            let mut page = metrics.render();
            collectors.append_to(&mut page);
            ([(CONTENT_TYPE, TEXT)], page).into_response()
        }
        Err(refused) => FaultBody::from(refused).into_response(),
    };
    Router::new().route(METRICS, get(page)).merge(health_paths(health)).fallback(unknown_path)
}

async fn keep_up(metrics: PrometheusHandle) -> std::convert::Infallible {
    loop {
        tokio::time::sleep(UPKEEP_EVERY).await;
        metrics.run_upkeep();
    }
}
