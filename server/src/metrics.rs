//! What Prometheus sees. Every name is here, and every handle is made once, so that the hot path looks nothing up.

use metrics::{Counter, Gauge, Histogram, Unit, counter, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;
use tallystone_proto::code_name;
use tonic::Code;

const RPC_CALLS: &str = "tallystone_rpc_calls_total";
const RPC_SECONDS: &str = "tallystone_rpc_seconds";
const COMBINED_ITEMS: &str = "tallystone_combined_items";
const WAITING: &str = "tallystone_waiting_dequeues";
const STREAMS: &str = "tallystone_work_streams";
const SWEEPS: &str = "tallystone_sweeps_total";
const SWEPT: &str = "tallystone_swept_messages_total";
const STORE_AVAILABLE: &str = "tallystone_store_available";

/// Upper bounds of the latency buckets: a millisecond is a fast call, five minutes the longest wait.
const SECONDS: &[f64] =
    &[0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0];
/// Upper bounds of the batch sizes.
const ITEMS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_000.0];

/// The handles of one server.
pub(crate) struct Metrics {
    rpcs: HashMap<&'static str, RpcMetrics>,
    /// Items per store call.
    pub(crate) combined: Combined,
    /// Dequeues and Work streams that wait for messages.
    pub(crate) waiting: Gauge,
    /// Open Work streams.
    pub(crate) streams: Gauge,
    /// Sweeps of one shard.
    pub(crate) sweeps: Counter,
    /// Invisible messages made pending by sweeps.
    pub(crate) promoted: Counter,
    /// Lapsed leases ended by sweeps.
    pub(crate) expired: Counter,
    /// Terminal messages removed by sweeps.
    pub(crate) collected: Counter,
    /// 1 while the store answers.
    pub(crate) store_available: Gauge,
}

struct RpcMetrics {
    ok: Counter,
    seconds: Histogram,
}

/// Items per combined store call, by verb.
pub(crate) struct Combined {
    pub(crate) complete: Histogram,
    pub(crate) release: Histogram,
    pub(crate) extend: Histogram,
    pub(crate) cancel: Histogram,
    pub(crate) enqueue: Histogram,
    pub(crate) dequeue: Histogram,
}

impl Metrics {
    /// Handles of the recorder that is installed now; without one they do nothing.
    pub(crate) fn new(rpcs: &[&'static str]) -> Self {
        let of_rpc = |rpc: &&'static str| {
            let ok = counter!(RPC_CALLS, "rpc" => *rpc, "code" => code_name(Code::Ok));
            (*rpc, RpcMetrics { ok, seconds: histogram!(RPC_SECONDS, "rpc" => *rpc) })
        };
        describe_histogram!(RPC_SECONDS, Unit::Seconds, "from the decoded request to the answer, waits included");
        let combined = |verb: &'static str| histogram!(COMBINED_ITEMS, "verb" => verb);
        let swept = |kind: &'static str| counter!(SWEPT, "kind" => kind);
        Metrics {
            rpcs: rpcs.iter().map(of_rpc).collect(),
            combined: Combined {
                complete: combined("complete"),
                release: combined("release"),
                extend: combined("extend_lease"),
                cancel: combined("cancel"),
                enqueue: combined("enqueue"),
                dequeue: combined("dequeue"),
            },
            waiting: gauge!(WAITING),
            streams: gauge!(STREAMS),
            sweeps: counter!(SWEEPS),
            promoted: swept("promoted"),
            expired: swept("expired"),
            collected: swept("collected"),
            store_available: gauge!(STORE_AVAILABLE),
        }
    }

    /// Counts one finished call.
    pub(crate) fn called(&self, rpc: &'static str, code: Code, took: Duration) {
        let Some(metrics) = self.rpcs.get(rpc) else { return };
        metrics.seconds.record(took.as_secs_f64());
        match code {
            Code::Ok => metrics.ok.increment(1),
            code => counter!(RPC_CALLS, "rpc" => rpc, "code" => code_name(code)).increment(1),
        }
    }
}

/// Serves `/metrics` at an address and makes its recorder the process's: once per process. The future ends with an
/// error or not at all.
pub(crate) fn listen(address: SocketAddr) -> Result<impl Future<Output = ()> + Send, String> {
    let (recorder, exporter) = PrometheusBuilder::new()
        .with_http_listener(address)
        .set_buckets_for_metric(Matcher::Full(RPC_SECONDS.to_owned()), SECONDS)
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Full(COMBINED_ITEMS.to_owned()), ITEMS))
        .and_then(PrometheusBuilder::build)
        .map_err(|error| error.to_string())?;
    metrics::set_global_recorder(recorder).map_err(|error| error.to_string())?;
    Ok(async move {
        if exporter.await.is_err() {
            tracing::error!(%address, "the metrics listener has ended");
        }
    })
}
