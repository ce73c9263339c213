//! The Prometheus recorder of the process, and the port that shows it.

use crate::ServeError;
use crate::rpc::{RPC_SECONDS, RPC_SECONDS_BUCKETS};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use std::net::SocketAddr;

/// The upper bounds of the buckets of one histogram. Histograms without them are exported as summaries.
#[derive(Clone, Copy, Debug)]
pub struct Buckets {
    /// The histogram.
    pub metric: &'static str,
    /// Rising, in the metric's unit.
    pub bounds: &'static [f64],
}

/// Installs the process's metrics recorder and binds `/metrics`: once per process, before any metric handle is made.
/// The returned future serves the port; it ends only on failure.
///
/// # Errors
/// [`ServeError::Metrics`]: the address cannot be bound, or the process has a recorder already.
pub fn listen_metrics(
    address: SocketAddr,
    buckets: &[Buckets],
) -> Result<impl Future<Output = ()> + Send + use<>, ServeError> {
    let failed = |why: String| ServeError::Metrics { address, why };
    let mut builder = PrometheusBuilder::new().with_http_listener(address);
    for Buckets { metric, bounds } in
        [&Buckets { metric: RPC_SECONDS, bounds: RPC_SECONDS_BUCKETS }].into_iter().chain(buckets)
    {
        builder = builder
            .set_buckets_for_metric(Matcher::Full((*metric).to_owned()), bounds)
            .map_err(|error| failed(error.to_string()))?;
    }
    let (recorder, exporter) = builder.build().map_err(|error| failed(error.to_string()))?;
    ::metrics::set_global_recorder(recorder).map_err(|error| failed(error.to_string()))?;
    Ok(async move {
        if exporter.await.is_err() {
            tracing::error!(%address, "the metrics listener has ended");
        }
    })
}
