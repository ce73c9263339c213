//! Trace contexts and the spans of OpenTelemetry (O2).

use crate::trace_context::TraceContext;
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};

impl TraceContext {
    /// The context that names the current span as the parent. `None`: there is no span.
    pub fn current() -> Option<TraceContext> {
        Context::map_current(|context| {
            let span = context.span();
            let span = span.span_context();
            let traceparent = || {
                let flags = span.trace_flags() & TraceFlags::SAMPLED;
                format!("00-{}-{}-{flags:02x}", span.trace_id(), span.span_id())
            };
            let tracestate = Some(span.trace_state().header()).filter(|text| !text.is_empty());
            span.is_valid().then(|| TraceContext { traceparent: traceparent(), tracestate })
        })
    }

    /// A context whose current span is the one that this names, in another process.
    pub fn remote(&self) -> Context {
        let part = |from: usize, to: usize| self.traceparent.get(from..to).unwrap_or_default();
        let flags = u8::from_str_radix(part(53, 55), 16).unwrap_or_default();
        let tracestate = self.tracestate.as_deref().and_then(|text| text.parse().ok());
        let span = SpanContext::new(
            TraceId::from_hex(part(3, 35)).unwrap_or(TraceId::INVALID),
            SpanId::from_hex(part(36, 52)).unwrap_or(SpanId::INVALID),
            TraceFlags::new(flags) & TraceFlags::SAMPLED,
            true,
            tracestate.unwrap_or(TraceState::NONE),
        );
        Context::new().with_remote_span_context(span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o2_a_context_survives_a_span() {
        assert_eq!(TraceContext::current(), None);
        for flags in ["00", "01"] {
            let sent = format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}");
            for tracestate in [None, Some("a=1,b=2")] {
                let context = TraceContext::parse(&sent, tracestate).unwrap();
                let _current = context.remote().attach();
                assert_eq!(TraceContext::current(), Some(context));
            }
        }
    }
}
