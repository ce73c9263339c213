//! The spans of handlers (O2): each begins with its handler, as a child of the trace context in the message, and ends when the
//! outcome is settled.

use super::outcome::{Lost, Outcome};
use crate::lease::{Lease, LeaseRef};
use opentelemetry::global::{BoxedTracer, tracer};
use opentelemetry::trace::{SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use std::collections::HashMap;
use tallystone_proto::{TRACEPARENT, TRACESTATE, TraceContext};

/// The spans that have not ended. Dropped, it ends them.
pub(super) struct Spans {
    tracer: BoxedTracer,
    running: HashMap<LeaseRef, Context>,
}

impl Spans {
    /// Spans of the global tracer provider that is installed now.
    pub(super) fn new() -> Spans {
        Spans { tracer: tracer("tallystone"), running: HashMap::new() }
    }

    /// A context with the span of a message. Without a tracer provider it has the message's own context.
    pub(super) fn begin(&mut self, queue: &str, lease: &Lease) -> Context {
        let tracestate = lease.metadata.get(TRACESTATE).map(String::as_str);
        let sent = lease.metadata.get(TRACEPARENT).and_then(|parent| TraceContext::parse(parent, tracestate));
        let parent = sent.map_or_else(Context::new, |sent| sent.remote());
        let span = self.tracer.span_builder(format!("process {queue}")).with_kind(SpanKind::Consumer);
        let context = parent.with_span(self.tracer.build_with_context(span, &parent));
        if context.span().is_recording() {
            context.span().set_attributes([
                KeyValue::new("messaging.system", "tallystone"),
                KeyValue::new("messaging.operation.name", "process"),
                KeyValue::new("messaging.operation.type", "process"),
                KeyValue::new("messaging.destination.name", queue.to_owned()),
                KeyValue::new("messaging.message.id", lease.id.clone()),
                KeyValue::new("tallystone.attempt", i64::from(lease.attempt)),
            ]);
            self.running.insert(lease.lease_ref(), context.clone());
        }
        context
    }

    /// Ends the span of a lease.
    pub(super) fn end(&mut self, lease: &LeaseRef, outcome: &Outcome) {
        let Some(context) = self.running.remove(lease) else { return };
        let span = context.span();
        let name = match outcome {
            Outcome::Completed(_) => "completed",
            Outcome::Released(_) => {
                span.set_status(Status::error("the handler failed"));
                "released"
            }
            Outcome::Lost(cause) => {
                span.set_status(Status::error(lost(cause)));
                "lost"
            }
        };
        span.set_attribute(KeyValue::new("tallystone.outcome", name));
        span.end();
    }
}

/// Why a lease was lost.
fn lost(cause: &Lost) -> String {
    match cause {
        Lost::Expired => "the lease expired".to_owned(),
        Lost::Revoked => "the lease was revoked".to_owned(),
        Lost::StreamClosed => "the stream broke".to_owned(),
        Lost::Refused(refused) => refused.reason.clone(),
    }
}
