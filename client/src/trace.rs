//! The trace context of calls (O2).

use tallystone_proto::{TRACEPARENT, TRACESTATE, TraceContext};
use tonic::metadata::MetadataMap;

/// Adds the context of the caller's span, if there is one.
pub(crate) fn add_to(metadata: &mut MetadataMap) {
    let Some(context) = TraceContext::current() else { return };
    for (key, value) in [(TRACEPARENT, Some(context.traceparent)), (TRACESTATE, context.tracestate)] {
        if let Some(value) = value.and_then(|value| value.parse().ok()) {
            metadata.insert(key, value);
        }
    }
}
