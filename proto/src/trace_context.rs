//! The W3C trace context of a call or a message: `traceparent` and `tracestate` (O2).

use tonic::metadata::MetadataMap;

/// The header, and the key in a message's metadata, that names the trace and the parent span.
pub const TRACEPARENT: &str = "traceparent";
/// The header, and the key in a message's metadata, with what tracing systems add.
pub const TRACESTATE: &str = "tracestate";
/// W3C: the length of version 00, and of the beginning of every later version.
const LENGTH: usize = 55;

/// A valid `traceparent`, and the `tracestate` that came with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace, the parent span, and whether it is sampled.
    pub traceparent: String,
    /// Opaque.
    pub tracestate: Option<String>,
}

impl TraceContext {
    /// `None`: the `traceparent` is invalid.
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<TraceContext> {
        let tracestate = tracestate.filter(|text| !text.is_empty()).map(str::to_owned);
        is_valid(traceparent).then(|| TraceContext { traceparent: traceparent.to_owned(), tracestate })
    }

    /// The context that the caller has sent. `None`: it has sent none, or an invalid one.
    pub fn of_call(metadata: &MetadataMap) -> Option<TraceContext> {
        let text = |key| metadata.get(key).and_then(|value| value.to_str().ok());
        TraceContext::parse(text(TRACEPARENT)?, text(TRACESTATE))
    }
}

/// Version, trace id, span id and flags, in lowercase hex with dashes between them; no id is zero. Later versions may append fields.
fn is_valid(traceparent: &str) -> bool {
    let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_id = |text: &str| is_hex(text) && text.bytes().any(|digit| digit != b'0');
    let Some((first, rest)) = traceparent.split_at_checked(LENGTH) else { return false };
    let mut parts = first.split('-');
    let mut part = |length| parts.next().filter(|part| part.len() == length);
    let (Some(version), Some(trace), Some(span), Some(flags)) = (part(2), part(32), part(16), part(2)) else {
        return false;
    };
    let ends_well = rest.is_empty() || (version != "00" && rest.starts_with('-'));
    is_hex(version) && version != "ff" && is_id(trace) && is_id(span) && is_hex(flags) && ends_well
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn o2_only_a_valid_traceparent_counts() {
        let later = VALID.replacen("00", "cc", 1);
        for good in [VALID, &later, &format!("{later}-what-comes-later")] {
            assert_eq!(TraceContext::parse(good, None).map(|context| context.traceparent).as_deref(), Some(good));
        }
        for bad in [
            "",
            "00",
            &VALID.to_uppercase(),
            &VALID[..54],
            &format!("{VALID}-more"),
            &format!("{later}more"),
            &VALID.replacen("00", "ff", 1),
            &VALID.replace('-', "_"),
            &VALID.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &VALID.replace("b7ad6b7169203331", &"0".repeat(16)),
            &VALID.replace("b7ad6b7169203331", "ä7ad6b716920333"),
        ] {
            assert_eq!(TraceContext::parse(bad, None), None, "{bad}");
        }
    }

    #[test]
    fn o2_the_headers_of_a_call_are_its_context() {
        let mut metadata = MetadataMap::new();
        assert_eq!(TraceContext::of_call(&metadata), None);
        metadata.insert(TRACESTATE, "a=1".parse().unwrap());
        assert_eq!(TraceContext::of_call(&metadata), None);
        metadata.insert(TRACEPARENT, VALID.parse().unwrap());
        assert_eq!(TraceContext::of_call(&metadata), TraceContext::parse(VALID, Some("a=1")));
        metadata.insert(TRACESTATE, "".parse().unwrap());
        assert_eq!(TraceContext::of_call(&metadata), TraceContext::parse(VALID, None));
    }
}
