//! The traces of this process (O2). The feature `otlp` has the exporter.

use opentelemetry::Context;
use opentelemetry::trace::FutureExt;
use tallystone_proto::{TRACEPARENT, TRACESTATE, TraceContext};

#[cfg(feature = "otlp")]
mod otlp;
#[cfg(feature = "otlp")]
pub(crate) use otlp::{end, start};

#[cfg(not(feature = "otlp"))]
mod absent;
#[cfg(not(feature = "otlp"))]
pub(crate) use absent::{end, start};

/// Runs a verb as a part of the trace that the environment names, such as that of the message whose command runs it.
pub(crate) async fn within_environment<T>(verb: impl Future<Output = T>) -> T {
    let text = |name: &str| std::env::var(name.to_uppercase()).ok();
    let sent = text(TRACEPARENT).and_then(|parent| TraceContext::parse(&parent, text(TRACESTATE).as_deref()));
    verb.with_context(sent.map_or_else(Context::new, |sent| sent.remote())).await
}
