//! The spans of calls (O2), with the attributes of OpenTelemetry's semantic conventions. A process without an exporter has no
//! spans: a call then costs one check.

use crate::access::{Guarded, Resource};
use opentelemetry::global::{BoxedTracer, tracer};
use opentelemetry::trace::{SpanKind, Status as SpanStatus, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use std::sync::OnceLock;
use tallystone_proto::{TraceContext, code_name};
use tonic::metadata::MetadataMap;
use tonic::{Code, Request};

static TRACER: OnceLock<BoxedTracer> = OnceLock::new();
/// The service whose calls move messages.
const MESSAGING: &str = "tallystone.queue.v1.Queue";

/// Gives each call a span from now on, of the global tracer provider.
pub fn start_spans() {
    // A second start changes nothing.
    let _ = TRACER.set(tracer("tallystone"));
}

/// The trace context for what this call leaves behind: the call's span, if it is recorded, else what the caller has sent. `None`: the
/// caller has sent no valid context.
pub fn trace_context(metadata: &MetadataMap) -> Option<TraceContext> {
    let sent = TraceContext::of_call(metadata)?;
    let is_recorded = TRACER.get().is_some() && Context::map_current(|context| context.span().is_recording());
    let own = is_recorded.then(TraceContext::current).flatten();
    Some(own.unwrap_or(sent))
}

/// Records in the call's span how many items it has.
pub fn trace_items(items: usize) {
    if TRACER.get().is_some() {
        let items = KeyValue::new("messaging.batch.message_count", items as i64);
        Context::map_current(|context| context.span().set_attribute(items));
    }
}

/// A context with the span of this call, whose parent is the caller's. `None`: this process has no spans.
pub(crate) fn begin<R: Guarded>(request: &Request<R>) -> Option<Context> {
    let tracer = TRACER.get()?;
    let parent = TraceContext::of_call(request.metadata()).map_or_else(Context::new, |sent| sent.remote());
    let mut attributes = vec![
        KeyValue::new("rpc.system", "grpc"),
        KeyValue::new("rpc.service", R::SERVICE),
        KeyValue::new("rpc.method", R::RPC),
    ];
    if let Resource::One(queue) = request.get_ref().resource()
        && R::SERVICE == MESSAGING
    {
        attributes.push(KeyValue::new("messaging.system", "tallystone"));
        attributes.push(KeyValue::new("messaging.operation.name", R::RPC));
        attributes.push(KeyValue::new("messaging.destination.name", queue.to_owned()));
    }
    let span = tracer.span_builder(R::METHOD).with_kind(SpanKind::Server).with_attributes(attributes);
    Some(parent.with_span(tracer.build_with_context(span, &parent)))
}

/// Ends the span of a call. Dropped without this call, it ends too: the caller has gone.
pub(crate) fn end(context: &Context, code: Code) {
    let span = context.span();
    span.set_attribute(KeyValue::new("rpc.grpc.status_code", i64::from(i32::from(code))));
    if is_fault(code) {
        span.set_status(SpanStatus::error(code_name(code)));
    }
    span.end();
}

/// Whether a code speaks of a fault of the server, rather than of the request.
fn is_fault(code: Code) -> bool {
    use Code::{DataLoss, DeadlineExceeded, Internal, Unavailable, Unimplemented, Unknown};
    matches!(code, Unknown | DeadlineExceeded | Unimplemented | Internal | Unavailable | DataLoss)
}
